"""A way to a MongoDB server that ends after so many commands: what a process that is killed there leaves behind."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_OP_MSG = 2013
_HEADER = struct.Struct("<iiii")
_NOT_COUNTED = ("hello", "ismaster", "isMaster", "buildInfo", "endSessions", "")


class Cutting:
    """Carries out ``commands`` commands of its client. Neither the last answer nor anything after it gets through.

    ``was_cut`` tells whether there was a command more; ``names`` are those that were carried out.
    """

    def __init__(self, server_url: str, commands: int) -> None:
        where = urlsplit(server_url)
        assert where.hostname is not None
        self._server = (where.hostname, where.port or 27017)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._left = commands
        self._open: set[socket.socket] = set()
        self.was_cut = False
        self.names: list[str] = []
        port = self._listener.getsockname()[1]
        options = "directConnection=true&serverMonitoringMode=poll&retryReads=false&retryWrites=false"
        self.url = f"mongodb://127.0.0.1:{port}{where.path}?{options}&serverSelectionTimeoutMS=200"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            with self._lock:
                if self.was_cut:
                    return
                self._open |= {client, server}
            while request := _message(client):
                name = _command(request)
                with self._lock:
                    if self.was_cut:
                        return
                    last = False
                    if name not in _NOT_COUNTED:
                        self._left -= 1
                        last = self._left <= 0
                        self.was_cut = last
                        self.names.append(name)
                server.sendall(request)
                answer = _message(server)
                if last:
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


def _message(sock: socket.socket) -> bytes:
    """One whole message of the wire protocol, empty at the end of the connection."""
    head = _exactly(sock, _HEADER.size)
    return head + _exactly(sock, _HEADER.unpack(head)[0] - _HEADER.size) if head else b""


def _exactly(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = sock.recv(size - len(received))
        if not more:
            return b""
        received += more
    return received


def _command(message: bytes) -> str:
    """The command's name, which is the first key of the message's document; empty for another kind of message."""
    if _HEADER.unpack_from(message)[3] != _OP_MSG:
        return ""
    at = _HEADER.size + 10  # past the flags, the kind of the section, the document's length and the first key's type
    return message[at : message.index(b"\0", at)].decode()
