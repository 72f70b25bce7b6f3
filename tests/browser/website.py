"""A small web server for pages of another origin."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

# Content type and body.
Answer = tuple[str, bytes]


class Website:
    """Serves ``pages`` by path, at http://localhost and a free port.

    A page may be made at each request. ``redirects``: path -> address.
    """

    def __init__(self) -> None:
        self.pages: dict[str, Answer | Callable[[], Answer]] = {
            "/favicon.ico": ("image/x-icon", b"")
        }
        self.redirects: dict[str, str] = {}
        pages = self.pages
        redirects = self.redirects

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in redirects:
                    self.send_response(307)
                    self.send_header("Location", redirects[path])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                page = pages.get(path)
                if page is None:
                    self.send_error(404)
                    return
                type_, body = page() if callable(page) else page
                self.send_response(200)
                self.send_header("Content-Type", type_)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://localhost:{self._server.server_port}"

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
        self._server.server_close()
        self._thread.join()
