"""A small HTTP server beside an event loop. A thread answers, the event loop collects."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from oplog_kit.errors import ConfigError
from oplog_kit.listen import Address, listen_address

# Seconds within which the event loop must answer.
_PATIENCE = 5.0


class HttpAnswer(NamedTuple):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Paths = dict[str, Callable[[], HttpAnswer]]


def probes(registry: CollectorRegistry, is_live: Callable[[], bool]) -> Paths:
    """Return the answers to /live and /metrics."""
    return {
        "/live": lambda: HttpAnswer(200, b"live\n") if is_live() else HttpAnswer(503, b"stopped\n"),
        "/metrics": lambda: HttpAnswer(200, generate_latest(registry), CONTENT_TYPE_LATEST),
    }


@contextmanager
def serving(setting: str, listen: str, paths: Paths, program: str) -> Iterator[str]:
    """Serve GET and HEAD until the end of the context. Return the address.

    Call it in the event loop, which then calls the functions of the paths. ``listen``:
    ``HOST:PORT``, the value of ``setting``. Raises ConfigError.
    """
    loop = asyncio.get_running_loop()
    *others, last = paths
    unknown = HttpAnswer(404, f"{', '.join(others)} and {last} are here\n".encode())

    async def answer(path: str) -> HttpAnswer:
        return paths[path]() if path in paths else unknown

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked = asyncio.run_coroutine_threadsafe(answer(path), loop)
            try:
                self._send(asked.result(_PATIENCE))
            except TimeoutError:
                asked.cancel()
                self._send(HttpAnswer(503, b"the event loop hangs\n"))

        do_HEAD = do_GET

        def _send(self, answer: HttpAnswer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def version_string(self) -> str:
            return program

    try:
        server = _open(listen, Handler)
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    host, port = server.server_address[:2]
    try:
        yield str(Address(str(host), port))
    finally:
        server.shutdown()
        server.server_close()


def _open(listen: str, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    host, port = listen_address(listen)

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True
        block_on_close = False  # an open connection delays nothing

        def server_bind(self) -> None:
            # That of HTTPServer also looks up the name of this machine, which may take seconds.
            TCPServer.server_bind(self)

        def handle_error(self, request: object, client_address: object) -> None:
            """Log nothing: the client has gone."""

    try:
        return Server((host, port), handler)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot listen on {listen}: {reason}") from None
