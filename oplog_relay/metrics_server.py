"""Serves /metrics and /live over HTTP. A thread answers, the event loop collects."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from oplog_relay.checks import listen_address
from oplog_relay.errors import ConfigError

# Seconds within which the event loop must answer.
_PATIENCE = 5.0


class _Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


@contextmanager
def serving(listen: str, registry: CollectorRegistry, is_live: Callable[[], bool]) -> Iterator[str]:
    """Serve until the end of the context. Return the address. Call it in the event loop.

    ``listen``: ``HOST:PORT``. Raises ConfigError.
    """
    loop = asyncio.get_running_loop()

    async def answer(path: str) -> _Answer:
        if path == "/metrics":
            return _Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
        if path == "/live":
            return _Answer(200, b"live\n") if is_live() else _Answer(503, b"stopped\n")
        return _Answer(404, b"/metrics and /live are here\n")

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked = asyncio.run_coroutine_threadsafe(answer(path), loop)
            try:
                self._send(asked.result(_PATIENCE))
            except TimeoutError:
                asked.cancel()
                self._send(_Answer(503, b"the event loop hangs\n"))

        do_HEAD = do_GET

        def _send(self, answer: _Answer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def version_string(self) -> str:
            return "oplog-relay"

    server = _open(listen, Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    host, port = str(server.server_address[0]), server.server_address[1]
    try:
        yield f"{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.shutdown()
        server.server_close()


def _open(listen: str, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        host, port = listen_address(listen)
    except ValueError as error:
        raise ConfigError(f"metrics_listen: {error}") from None

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True
        block_on_close = False  # a connection that stays open delays nothing

        def server_bind(self) -> None:
            # That of HTTPServer also looks up the name of this machine, which may take seconds.
            TCPServer.server_bind(self)

        def handle_error(self, request: object, client_address: object) -> None:
            """Log nothing: the client has gone."""

    try:
        return Server((host, port), handler)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"metrics_listen: cannot listen on {listen}: {reason}") from None
