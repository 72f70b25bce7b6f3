"""A server that plays scripted answers byte by byte, and keeps the requests."""

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any, Self

from tests.conformance.steps import (
    PROBLEM,
    Do,
    Drip,
    Ingest,
    Printed,
    Script,
    Signal,
    StateHolds,
    Step,
    Told,
    WriteState,
    answer,
    problem,
)
from tests.kits.servers import request as kit
from tests.kits.web.unread import all_read

_POLL_SECONDS = 0.001
# How long a body stays unread after an interim answer. The client gets that answer meanwhile.
_INTERIM_SECONDS = 0.2
_FAILED = re.compile("trying again|operations wait")
UNEXPECTED: Script = [
    problem("410 Gone", "the script has no answer to this request", "Connection: close"),
    Do.CLOSE,
]


@dataclass
class Request(kit.Request):
    """Times are of the monotonic clock, except ``wall`` and ``promised``: seconds since 1970.

    ``port``: ``here`` or ``other``. ``at``, ``wall``: end of the request. ``answered``: end of the
    answer. ``accepted``: Ingest answered a batch with 200. ``promised``: latest date in the answer.
    """

    port: str = ""
    at: float = 0.0
    wall: float = 0.0
    answered: float = 0.0
    accepted: bool = False
    promised: float = 0.0

    @property
    def operations(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines() if line.strip()]

    @property
    def ids(self) -> list[str]:
        return [operation["id"] for operation in self.operations]


@dataclass
class Progress:
    """What the client has done so far.

    ``signal`` sends a signal to the client. It is None until the client has started. ``folder``
    holds the state file ``state``.
    """

    printed: int = 0
    stderr: str = ""
    signal: Callable[[int], None] | None = None
    folder: Path = Path()
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(condition)


class ScriptedServer:
    """Answers the nth request with the nth script, and later ones with ``rest``."""

    def __init__(
        self,
        answers: Sequence[Script],
        rest: Script | None,
        progress: Progress,
        interim: bytes = b"",
    ) -> None:
        self._answers = answers
        self._rest = rest
        self._progress = progress
        self._interim = interim
        self.requests: list[Request] = []
        # Number of a request -> the current step of its unfinished answer.
        self.playing: dict[int, Step] = {}
        self._listening: list[socket.socket] = []
        self._connections: list[socket.socket] = []
        self._ports: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def filled_in(self, text: str) -> str:
        """Replace ``%HERE%`` and ``%OTHER%`` by the ports."""
        for name, port in self._ports.items():
            text = text.replace(f"%{name.upper()}%", str(port))
        return text

    def standing(self) -> str:
        """Return the current steps of the unfinished answers."""
        return "; ".join(f"request {number}: {step!r}" for number, step in self.playing.items())

    async def __aenter__(self) -> Self:
        # LISTEN as the first step of the first answer: the first connection is refused.
        refusing = bool(self._answers and self._answers[0] and self._answers[0][0] is Do.LISTEN)
        for name in ("here", "other"):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._interim:
                # Small buffers: the client must still be sending when the interim answer comes.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            sock.bind(("127.0.0.1", 0))
            self._ports[name] = sock.getsockname()[1]
            if name == "here" and refusing:
                self._start(self._listen_later(sock))
            else:
                self._listen(name, sock)
        return self

    async def __aexit__(self, *_: object) -> None:
        for sock in self._listening:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # the event loop closes their sockets
        for connection in self._connections:  # a task that never began has closed none
            connection.close()

    def _listen(self, name: str, sock: socket.socket) -> None:
        # A server of asyncio that is closed loses a connection that it has just accepted.
        sock.setblocking(False)
        sock.listen()
        self._listening.append(sock)
        asyncio.get_running_loop().add_reader(sock, self._accept, name, sock)

    def _accept(self, name: str, sock: socket.socket) -> None:
        try:
            connection, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has gone
        connection.setblocking(False)
        self._connections.append(connection)
        self._start(self._serve(name, connection))

    async def _listen_later(self, sock: socket.socket) -> None:
        try:
            await self._progress.wait_for(lambda: bool(_FAILED.search(self._progress.stderr)))
        except BaseException:
            sock.close()
            raise
        self._listen("here", sock)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

    async def _serve(self, name: str, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 24)
        self._writers.append(writer)
        try:
            while request := await _read_request(reader, writer, self._interim, name):
                number = len(self.requests)
                self.requests.append(request)
                rest = self._rest if self._rest is not None else UNEXPECTED
                script = self._answers[number] if number < len(self._answers) else rest
                for step in script:
                    self.playing[number] = step
                    if not await self._play(step, request, reader, writer):
                        return
                    request.answered = time.monotonic()
                del self.playing[number]
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client has gone
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _play(
        self,
        step: Step,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Return False if the connection has ended."""
        progress = self._progress
        match step:
            case bytes():
                writer.write(self._with_dates(step, request))
                await writer.drain()
            case Do.READ:
                here, there = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
                while not all_read(here, there):
                    await asyncio.sleep(_POLL_SECONDS)
            case Do.HOLD:
                await reader.read()
                return False
            case Do.CLOSE:
                return False
            case Do.RESET:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
            case Do.FILL_DISK:
                await asyncio.to_thread(_fill, progress.folder / "filler")
            case Printed(events):
                await progress.wait_for(lambda: progress.printed >= events)
            case Told(pattern):
                await progress.wait_for(lambda: bool(re.search(pattern, progress.stderr)))
            case Drip():
                await self._drip(step, reader, writer)
            case Signal(number):
                await progress.wait_for(lambda: progress.signal is not None)
                assert progress.signal
                progress.signal(number)
            case WriteState(text):
                new = progress.folder / "from-another"
                new.write_text(text)
                new.replace(progress.folder / "state")
            case StateHolds(text):
                while (progress.folder / "state").read_text() != text:
                    await asyncio.sleep(_POLL_SECONDS)
            case Ingest():
                writer.write(_ingest(step, request, len(self.requests)))
                await writer.drain()
        return True

    async def _drip(
        self, step: Drip, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        times = step.times if step.times is not None else -1
        while (
            times
            and (step.events is None or self._progress.printed < step.events)
            and not reader.at_eof()
        ):
            writer.write(step.piece)
            await writer.drain()
            await asyncio.sleep(step.seconds)
            times -= 1

    def _with_dates(self, raw: bytes, request: Request) -> bytes:
        if b"%" in raw:
            raw = self.filled_in(raw.decode("latin-1")).encode("latin-1")
        for place in re.findall(rb"%DATE([+-]\d+)%", raw):
            date = int(time.time()) + 1 + int(place)
            request.promised = date
            raw = raw.replace(b"%%DATE%s%%" % place, formatdate(date, usegmt=True).encode())
        return raw


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, interim: bytes, port: str
) -> Request | None:
    """Send ``interim`` between head and body. Return None if the client closed the connection."""
    try:
        head = await kit.read_head(reader)
    except asyncio.IncompleteReadError:
        return None
    if interim:
        writer.write(interim)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(_INTERIM_SECONDS)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
    body = await kit.read_body(reader, head.headers)
    return Request(head.head, head.headers, body, port, time.monotonic(), time.time())


def _ingest(step: Ingest, request: Request, count: int) -> bytes:
    ids = request.ids
    limited = count <= step.wide_after and len(ids) > step.lines
    if limited or any(id_ in step.too_large for id_ in ids):
        return problem("413 Content Too Large", "send fewer operations at a time")
    if errors := [(n, id_) for n, id_ in enumerate(ids, 1) if id_ in step.bad]:
        named = [
            {"line": n, "field": "id", "reason": f"{id_} is not accepted"} for n, id_ in errors
        ]
        body = {
            "title": "Bad Request",
            "status": 400,
            "detail": f"{len(named)} lines are invalid",
            "errors": named,
        }
        return answer("400 Bad Request", json.dumps(body), PROBLEM)
    request.accepted = True
    return answer("200 OK", f'{{"ingested": {len(ids)}}}', "Content-Type: application/json")


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(512))
