"""A proxy before PostgreSQL that gives each transaction another connection, as PgBouncer does."""

import queue
import socket
from contextlib import suppress
from typing import BinaryIO

from tests.kits.proxies.postgres import read_exactly, read_message
from tests.kits.proxies.proxy import Proxy, end

# Query, Sync, and the end of COPY: the server answers.
_ASKING = (b"Q", b"S", b"c", b"f")
_READY, _COPY_IN = b"Z", b"G"
_IDLE = b"I"
_SERVERS = 2


class TransactionPool(Proxy):
    """Two connections to the server for all clients, which must be the same user.

    A transaction takes the connection that has been idle for longest: never the same one twice in a
    row. Prepared statements and settings stay on it.
    """

    def __init__(self, port: int) -> None:
        self._greeting = b""
        self._servers: list[tuple[socket.socket, BinaryIO]] = []
        self._idle: queue.SimpleQueue[tuple[socket.socket, BinaryIO]] = queue.SimpleQueue()
        super().__init__(port)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError), client, client.makefile("rb") as requests:
            size = read_exactly(requests, 4)
            self._open_servers(size + read_exactly(requests, int.from_bytes(size) - 4))
            client.sendall(self._greeting)
            while True:
                first = read_message(requests)
                if first[0] == b"X":
                    return
                server, answers = self._idle.get()
                self._transact(client, requests, first, server, answers)
                self._idle.put((server, answers))

    def _transact(
        self,
        client: socket.socket,
        requests: BinaryIO,
        message: tuple[bytes, bytes],
        server: socket.socket,
        answers: BinaryIO,
    ) -> None:
        while True:
            kind, whole = message
            server.sendall(whole)
            if kind in _ASKING:
                answer = b""
                while answer not in (_READY, _COPY_IN):
                    answer, passed = read_message(answers)
                    client.sendall(passed)
                if answer == _READY and passed.endswith(_IDLE):
                    return
            message = read_message(requests)

    def _open_servers(self, startup: bytes) -> None:
        with self._lock:
            if self._servers:
                return
            for _ in range(_SERVERS):
                server = self._connect()
                server.sendall(startup)
                answers = server.makefile("rb")
                kind, greeting = b"", b""
                while kind != _READY:
                    kind, whole = read_message(answers)
                    greeting += whole
                self._greeting = greeting
                self._servers.append((server, answers))
                self._idle.put((server, answers))

    def __exit__(self, *given: object) -> None:
        super().__exit__(*given)  # type: ignore[arg-type]
        for server, answers in self._servers:
            end(server)
            answers.close()
            server.close()
