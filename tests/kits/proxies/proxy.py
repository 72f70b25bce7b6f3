"""A proxy before a server, for tests that disturb connections."""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.kits.processes.logged import DEADLINE

_PIECE = 1 << 16


class Proxy:
    """Listens on a port of its own. Serves each connection in a thread, and passes bytes on.

    ``target``: the server's port, for new connections. ``connections``: their number until now.
    Subclasses that know a protocol replace ``_talk``.
    """

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self.target = target
        self.connections = 0
        self._host = host
        self._lock = threading.Condition()
        # The server's side of each connection -> the client's.
        self._open: dict[socket.socket, socket.socket] = {}
        # Sides of the server whose answers are kept back, and whether one was.
        self._silent: set[socket.socket] = set()
        self._has_held = False
        self._is_cut = False
        self._is_frozen = False
        self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = self._start(self._accept)

    def through(self, url: str) -> str:
        """Return the URL of the server, but through this proxy."""
        where = urlsplit(url)
        account, at, _ = where.netloc.rpartition("@")
        return where._replace(netloc=f"{account}{at}127.0.0.1:{self.port}").geturl()

    def disconnect(self) -> None:
        """End all connections, and every new one at once, until ``mend``."""
        with self._lock:
            self._is_cut = True
        self.end_connections()

    def mend(self) -> None:
        self._is_cut = False

    def end_connections(self) -> None:
        """End all connections and lose what is under way. New ones work."""
        with self._lock:
            end(*self._open, *self._open.values())
            self._silent.clear()
            self._lock.notify_all()

    def freeze(self) -> None:
        """Keep all that is sent in both directions, until ``thaw`` lets it go on."""
        with self._lock:
            self._is_frozen = True

    def thaw(self) -> None:
        with self._lock:
            self._is_frozen = False
            self._lock.notify_all()

    def hold_answers(self) -> None:
        """Keep the answers on the connections of now back, until they end."""
        with self._lock:
            self._silent, self._has_held = set(self._open), False

    def wait_held(self) -> None:
        """Wait until an answer is kept back: the server has carried the request out."""
        with self._lock:
            assert self._lock.wait_for(lambda: self._has_held, DEADLINE), "no answer came"

    def wait_connections(self, number: int) -> None:
        """Wait until there were so many connections."""
        with self._lock:
            done = self._lock.wait_for(lambda: self.connections >= number, DEADLINE)
            assert done, f"{self.connections} of {number} connections"

    def _wait_thawed(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self._is_frozen)

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        """Serve a connection, which ends on return."""
        answers = self._start(self._pass_on, server, client)
        self._pass_on(client, server)
        answers.join()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                with self._lock:
                    if source in self._silent:
                        self._has_held = True
                        self._lock.notify_all()
                    self._lock.wait_for(lambda: not self._is_frozen and source not in self._silent)
                target.sendall(piece)
        end(source, target)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self._is_cut:
                return
            with self._connect() as server:
                with self._lock:
                    if self._is_cut:
                        return
                    self._open[server] = client
                    self.connections += 1
                    self._lock.notify_all()
                try:
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._talk(client, server)
                finally:
                    with self._lock:
                        del self._open[server]

    def _connect(self) -> socket.socket:
        server = socket.create_connection((self._host, self.target))
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _start(self, serve: Callable[..., None], *sockets: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=serve, args=sockets, daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end(self._listener)
        self._accepting.join(DEADLINE)
        self._listener.close()
        with self._lock:
            self._is_closed = True
        self.disconnect()
        self.thaw()


def end(*sockets: socket.socket) -> None:
    """End connections. Threads that read from them or write to them notice it."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
