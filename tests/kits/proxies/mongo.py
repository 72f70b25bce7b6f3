"""Proxies before a MongoDB server, which disturb single commands."""

import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import urlencode, urlsplit

from pymongo.errors import PyMongoError

from oplogd.errors import StoreUnavailableError
from tests.kits.proxies.proxy import Proxy

OP_MSG = 2013
HEADER = struct.Struct("<iiii")
_BSON_STRING = 2
_TRIES = 10
_NOT_COUNTED = ("hello", "ismaster", "isMaster", "buildInfo", "endSessions", "")


class MongoProxy(Proxy):
    """A proxy for drivers. Subclasses pass on messages in ``_talk``, one at a time."""

    def __init__(self, server_url: str) -> None:
        where = urlsplit(server_url)
        assert where.hostname is not None
        super().__init__(where.port or 27017, where.hostname)
        self._direct = f"mongodb://127.0.0.1:{self.port}{where.path}"

    def url(self, **options: str) -> str:
        """Return the URL of the database through this proxy.

        A driver must not pass it by, nor get messages that it did not ask for.
        """
        fixed = {"directConnection": "true", "serverMonitoringMode": "poll"}
        return f"{self._direct}?{urlencode({**fixed, **options})}"


class CommandProxy(MongoProxy):
    """Passes on every message between the clients of ``url`` and the server.

    ``hold`` keeps commands from the server. ``cut_answers`` ends the connection instead of passing
    on an answer: the command was carried out, and its client does not know.
    """

    def __init__(self, server_url: str) -> None:
        self._held_command = ""
        self._cut = ("", "")
        self.cuts = 0
        # Number of commands that were held, and of those that were carried out afterwards.
        self.held = self.late = 0
        super().__init__(server_url)

    @contextlib.contextmanager
    def hold(self, command: str) -> Iterator[None]:
        """Keep these commands from the server. Afterwards those of open connections reach it."""
        with self._lock:
            self._held_command = command
        try:
            yield
        finally:
            with self._lock:
                self._held_command = ""
                self._lock.notify_all()

    def cut_answers(self, command: str, collection: str, times: int) -> None:
        """End the connection before the answer to such a command, ``times`` times.

        ``cuts`` counts from ``-times`` up to 0.
        """
        with self._lock:
            self._cut, self.cuts = (command, collection), -times

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while request := read_message(client):
            command = command_name(request)
            with self._lock:
                late = command == self._held_command
                self.held += late
                self._lock.wait_for(lambda command=command: command != self._held_command)  # type: ignore[misc]
            server.sendall(request)
            answer = read_message(server)
            with self._lock:
                self.late += late
                if self.cuts < 0 and (command, command_collection(request)) == self._cut:
                    self.cuts += 1
                    return
            client.sendall(answer)


class Cutting(MongoProxy):
    """Carries out ``commands`` commands of its client, and ends before the last answer.

    It is as if the client were killed. ``was_cut``: whether the client sent that many.
    ``names``: the commands carried out.
    """

    def __init__(self, server_url: str, commands: int) -> None:
        self._left = commands
        self.was_cut = False
        self.names: list[str] = []
        super().__init__(server_url)
        self.address = self.url(
            retryReads="false", retryWrites="false", serverSelectionTimeoutMS="200"
        )

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while request := read_message(client):
            name = command_name(request)
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
            answer = read_message(server)
            if last:
                return
            client.sendall(answer)


async def cut_off(
    url: str,
    commands: int,
    prepare: Callable[[], Awaitable[None]],
    work: Callable[[str], Awaitable[None]],
) -> list[str]:
    """Prepare, and work at an address that cuts the work off after some commands.

    Return the commands that were carried out.
    """
    for _ in range(_TRIES):
        await prepare()
        with Cutting(url, commands) as cutting:
            with contextlib.suppress(PyMongoError, StoreUnavailableError):
                await work(cutting.address)
                return cutting.names
            if cutting.was_cut:
                return cutting.names
        # It has failed before the cut: a busy machine was too slow for it.
    raise AssertionError(f"the work failed {_TRIES} times before command {commands}")


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
