"""A relay between drivers and a MongoDB server, for tests that disturb commands."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit

OP_MSG = 2013
HEADER = struct.Struct("<iiii")
_BSON_STRING = 2


class Relay:
    """Listens on its own port, and serves each connection in a thread.

    Subclasses pass on messages in ``_talk``.
    """

    def __init__(self, server_url: str) -> None:
        where = urlsplit(server_url)
        assert where.hostname is not None
        self._server = (where.hostname, where.port or 27017)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Condition()
        self._direct = f"mongodb://127.0.0.1:{self._listener.getsockname()[1]}{where.path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, **options: str) -> str:
        """Return the URL of the database through this relay.

        A driver must not pass it by, nor get messages that it did not ask for.
        """
        fixed = {"directConnection": "true", "serverMonitoringMode": "poll"}
        return f"{self._direct}?{urlencode({**fixed, **options})}"

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        """Serve a connection, closed on return. The driver sends one message at a time."""
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            with self._lock:
                self._open |= {client, server}
            self._talk(client, server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        with self._lock:
            for each in self._open:
                each.close()


def read_message(sock: socket.socket) -> bytes:
    """Read one message of the wire protocol. Empty at the end of the connection."""
    head = _exactly(sock, HEADER.size)
    return head + _exactly(sock, HEADER.unpack(head)[0] - HEADER.size) if head else b""


def command_name(message: bytes) -> str:
    """Return the name of the command, the document's first key. Empty for other messages."""
    if HEADER.unpack_from(message)[3] != OP_MSG:
        return ""
    at = (
        HEADER.size + 10
    )  # past the flags, the kind of the section, the document's length and the first key's type
    return message[at : message.index(b"\0", at)].decode()


def command_collection(message: bytes) -> str:
    """Return the collection of a command; empty if it has none."""
    if not (name := command_name(message)) or message[HEADER.size + 9] != _BSON_STRING:
        return ""
    at = HEADER.size + 10 + len(name.encode()) + 1 + 4  # past the value's length, too
    return message[at : message.index(b"\0", at)].decode()


def _exactly(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = sock.recv(size - len(received))
        if not more:
            return b""
        received += more
    return received
