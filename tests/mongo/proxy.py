"""A connection to a MongoDB server that a test can disturb, one command at a time."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit

OP_MSG = 2013
HEADER = struct.Struct("<iiii")


class Proxy:
    """Passes on every message between the clients of ``url`` and the server.

    ``hold`` keeps commands from the server; ``cut_answers`` ends the connection when the answer has come, so that the command
    was carried out and its client does not know.
    """

    def __init__(self, server_url: str) -> None:
        where = urlsplit(server_url)
        assert where.hostname is not None
        self._server = (where.hostname, where.port or 27017)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Condition()
        self._held = ""
        self._cut = ""
        self.cuts = 0
        self.late = 0
        """How many commands were held and then carried out."""
        self._direct = f"mongodb://127.0.0.1:{self._listener.getsockname()[1]}{where.path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, **options: str) -> str:
        """The same database through here. A driver must not go past it, nor be told what it did not ask for."""
        return f"{self._direct}?{urlencode({'directConnection': 'true', 'serverMonitoringMode': 'poll', **options})}"

    @contextlib.contextmanager
    def hold(self, command: str) -> Iterator[None]:
        """Meanwhile these commands do not reach the server; those of connections that are still open do afterwards."""
        with self._lock:
            self._held = command
        try:
            yield
        finally:
            with self._lock:
                self._held = ""
                self._lock.notify_all()

    def cut_answers(self, command: str, times: int) -> None:
        """So many times a connection ends before the answer to such a command; ``cuts`` counts them."""
        with self._lock:
            self._cut, self.cuts = command, -times

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One message and its answer after the other; the driver does not send more at a time."""
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            with self._lock:
                self._open |= {client, server}
            while request := read_message(client):
                command = _command(request)
                with self._lock:
                    late = command == self._held
                    self._lock.wait_for(lambda command=command: command != self._held)  # type: ignore[misc]
                server.sendall(request)
                answer = read_message(server)
                with self._lock:
                    self.late += late
                    if command == self._cut and self.cuts < 0:
                        self.cuts += 1
                        return
                client.sendall(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        with self._lock:
            for each in self._open:
                each.close()


def read_message(sock: socket.socket) -> bytes:
    """One whole message of the wire protocol, empty at the end of the connection."""
    head = _exactly(sock, HEADER.size)
    return head + _exactly(sock, HEADER.unpack(head)[0] - HEADER.size) if head else b""


def _exactly(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = sock.recv(size - len(received))
        if not more:
            return b""
        received += more
    return received


def _command(message: bytes) -> str:
    """The name of the command, which is the first key of the message's document; empty for another kind of message."""
    if HEADER.unpack_from(message)[3] != OP_MSG:
        return ""
    at = HEADER.size + 10  # past the flags, the kind of the section, the document's length and the first key's type
    return message[at : message.index(b"\0", at)].decode()
