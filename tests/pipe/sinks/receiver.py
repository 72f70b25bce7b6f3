"""An HTTP server that takes messages and answers as a test says."""

import ssl
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import NamedTuple, Self


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Response(NamedTuple):
    """``status`` 0: end the connection without an answer."""

    status: int
    headers: dict[str, str] = {}  # noqa: RUF012
    body: bytes = b""


class Receiver:
    """Answers with each of ``answers`` once, then with 200. Keeps the requests."""

    def __init__(self, *answers: Response, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        left = list(answers)
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one packet

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                requests.append(Request(self.path, headers, body))
                answer = left.pop(0) if left else Response(200)
                if not answer.status:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._scheme = "http" if tls is None else "https"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.address}/hook"

    def bodies(self) -> Sequence[bytes]:
        return [each.body for each in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
