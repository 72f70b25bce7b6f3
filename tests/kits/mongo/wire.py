"""A connection to a MongoDB server that adds a lagging majority and late inserts.

It reads and rewrites commands (OP_MSG). ``CommandProxy`` is simpler, for all commands of one name.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Literal

import bson
from bson import Timestamp
from bson.codec_options import CodecOptions, DatetimeConversion

from tests.kits.agents.agent import DEADLINE
from tests.kits.proxies.mongo import HEADER, OP_MSG, MongoProxy, read_message

Command = dict[str, Any]
Matches = Callable[[Command], bool]
Moment = Literal["before", "after"]

# Longer than an insert may take without being late.
PAUSE_SECONDS = 1.2

_LOG = "oplog_ops"
_OF_SESSIONS = ("lsid", "$clusterTime", "txnNumber")

# Bytes before the document in the old kind of answer, which a driver's first question gets.
_OP_REPLY_SIZE = 20


def inserts(command: Command) -> bool:
    """Return whether a command appends to the log."""
    return command.get("insert") == _LOG


def asks_for_head(command: Command) -> bool:
    """Return whether a command looks up the newest entry."""
    chosen = command.get("filter", {})
    if command.get("find") != "oplog_ops" or "w" in chosen:
        return False
    return command.get("sort") == {"n": -1} or "$in" in str(chosen.get("n"))


class Held:
    """The first command that matches. It waits for ``release``, or for the end of the test."""

    def __init__(self, matches: Matches, moment: Moment) -> None:
        self.matches = matches
        self.moment = moment
        self.command: Command = {}
        self._came = threading.Event()
        self._released = threading.Event()
        self._done = threading.Event()
        self._client: socket.socket | None = None

    def wait(self) -> Command:
        """Wait until it has come. Return the command."""
        assert self._came.wait(DEADLINE), "no such command came"
        return self.command

    def cut(self) -> None:
        """End the client's connection, so that it does not know the result.

        The command goes on at ``release``.
        """
        assert self._client is not None
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let it go on. Wait until it was carried out, and answered if its client is there."""
        self._released.set()
        assert self._done.wait(DEADLINE), "the command was not carried out"

    def pause(self, client: socket.socket, command: Command) -> None:
        self.command, self._client = command, client
        self._came.set()
        self._released.wait(4 * DEADLINE)

    def done(self) -> None:
        self._done.set()


class Wire(MongoProxy):
    """Passes on every message between the clients of ``url`` and the server.

    ``as_replica_set``: drivers use sessions. Their parts of commands are removed for the stand-in.
    """

    def __init__(self, server_url: str, as_replica_set: bool = False) -> None:
        self._as_replica_set = as_replica_set
        self._held: list[Held] = []
        self._upto: int | None = None
        # Commands that are being carried out by the server.
        self._begun: set[object] = set()
        self._cuts: tuple[Matches, Moment] | None = None
        # Commands on the log, in the order of their arrival.
        self.seen: list[Command] = []
        self.cuts = 0
        # The cluster's time, for drivers that take this for the primary of a replica set.
        self.cluster_seconds = 1_700_000_000
        super().__init__(server_url)

    def lag(self, upto: int | None) -> None:
        """Let majority reads of the log end with this offset. None: with all entries again.

        Waits for the commands that are being carried out: a read must not see later entries.
        """
        with self._lock:
            self._upto = upto
            begun = set(self._begun)
            assert self._lock.wait_for(lambda: not begun & self._begun, DEADLINE)

    def url(self, **options: str) -> str:
        """Return the URL. A driver waits longer for a held command than a slow test holds it."""
        return super().url(**{"socketTimeoutMS": "120000", **options})

    def hold(self, matches: Matches, moment: Moment = "before") -> Held:
        """Hold the next command that matches, before or after it is carried out."""
        held = Held(matches, moment)
        with self._lock:
            self._held.append(held)
        return held

    def cut(self, matches: Matches | None, moment: Moment = "after") -> None:
        """End the connection of each command that matches; None: of none. ``cuts`` counts them."""
        with self._lock:
            self._cuts, self.cuts = (matches, moment) if matches else None, 0

    def wait_cuts(self, times: int) -> None:
        with self._lock:
            # A writer's pauses grow, and on a busy machine some of its tries do not arrive.
            done = self._lock.wait_for(lambda: self.cuts >= times, 3 * DEADLINE)
            assert done, f"{self.cuts} of {times} cuts; the last commands: {self.seen[-10:]}"

    def count(self, matches: Matches) -> int:
        with self._lock:
            return sum(map(matches, self.seen))

    def wait_seen(self, matches: Matches, times: int) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: sum(map(matches, self.seen)) >= times, DEADLINE), (
                self.seen[-5:]
            )

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while request := read_message(client):
            if not self._carry_out(client, server, request):
                return

    def _carry_out(self, client: socket.socket, server: socket.socket, request: bytes) -> bool:
        """Carry out one command. Return whether the connection goes on."""
        command = _decode(request)
        held, cut = None, None
        with self._lock:
            if _LOG in (command.get(name) for name in ("find", "insert", "delete", "update")):
                self.seen.append(command)
                self._lock.notify_all()
            if held := next((each for each in self._held if each.matches(command)), None):
                self._held.remove(held)
            if self._cuts and self._cuts[0](command):
                cut = self._cuts[1]
                self.cuts += 1
                self._lock.notify_all()
        if cut == "before":
            return False
        try:
            if held and held.moment == "before":
                held.pause(client, command)
            begun = object()
            with self._lock:
                self._begun.add(begun)
            try:
                server.sendall(self._request(command, request))
                answer = self._answer(command, read_message(server))
            finally:
                with self._lock:
                    self._begun.discard(begun)
                    self._lock.notify_all()
            if held and held.moment == "after":
                held.pause(client, command)
            if cut is None:
                client.sendall(answer)
            return cut is None
        finally:
            if held:
                held.done()

    def _request(self, command: Command, request: bytes) -> bytes:
        """Return the request to send. It bounds a majority read of a log that lags."""
        with self._lock:
            upto = self._upto
        concern = command.get("readConcern", {})
        changed = dict(command)
        if upto is not None and command.get("find") == _LOG and concern.get("level") == "majority":
            changed["filter"] = {"$and": [command.get("filter", {}), {"n": {"$lte": upto}}]}
        if self._as_replica_set:
            changed = {name: value for name, value in changed.items() if name not in _OF_SESSIONS}
            if "afterClusterTime" in concern:
                changed["readConcern"] = {"level": concern["level"]}
        if changed == command:
            return request
        body = bytes(4) + b"\0" + bson.encode(changed)
        _, number, answers, kind = HEADER.unpack_from(request)
        return HEADER.pack(HEADER.size + len(body), number, answers, kind) + body

    def _answer(self, command: Command, answer: bytes) -> bytes:
        if not self._as_replica_set or not answer:
            return answer
        _, number, answers, kind = HEADER.unpack_from(answer)
        start = HEADER.size + (5 if kind == OP_MSG else _OP_REPLY_SIZE)
        document: Command = bson.decode(
            answer[start:], CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
        )
        now = Timestamp(self.cluster_seconds, 1)
        document |= {
            "operationTime": now,
            "$clusterTime": {"clusterTime": now, "signature": {"hash": b"", "keyId": 0}},
        }
        if {"ismaster", "isWritablePrimary"} & document.keys():
            host = self._direct.partition("://")[2].partition("/")[0]
            document |= {
                "setName": "rs",
                "hosts": [host],
                "me": host,
                "logicalSessionTimeoutMinutes": 30,
            }
            self._rewrite(document)
        body = answer[HEADER.size : start] + bson.encode(document)
        return HEADER.pack(HEADER.size + len(body), number, answers, kind) + body

    def _rewrite(self, document: Command) -> None:
        """Change the answer in which the server describes itself. For subclasses."""


def _decode(message: bytes) -> Command:
    """Return the command, with the documents of other sections. Empty for other messages."""
    if HEADER.unpack_from(message)[3] != OP_MSG:
        return {}
    at = HEADER.size + 4
    command: Command = {}
    while at < len(message):
        section, at = message[at], at + 1
        size = int.from_bytes(message[at : at + 4], "little")
        part = message[at : at + size]
        if section == 0:
            command |= bson.decode(part)
        else:
            name, _, documents = part[4:].partition(b"\0")
            command[name.decode()] = bson.decode_all(documents)
        at += size
    return command
