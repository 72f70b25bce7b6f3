"""A proxy before an agent that holds, loses and refuses single requests, or all of them."""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Any, NamedTuple

from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.scripted import answer
from tests.kits.servers.server import Server

PUBLISH = "/publish"
LEASE = "/v1/leases/"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_UNAVAILABLE = answer("503 Service Unavailable", '{"status": 503, "title": "as the test wants"}')


class Fault(Enum):
    # The request waits in the network, whatever its client does, until the fault ends.
    HOLD = auto()
    # The agent carries the request out, and the connection ends before the answer.
    LOSE_ANSWER = auto()
    # The connection ends before the agent gets the request.
    LOSE_REQUEST = auto()
    # The agent does not get the request; the client gets 503.
    UNAVAILABLE = auto()


class Poll(NamedTuple):
    """An agent's answer to a poll of a lease."""

    leader: bool
    holder: str
    term: int
    expires_in_ms: int


class Met(NamedTuple):
    """A request that met a fault. ``status`` of the agent; 0: it did not get the request."""

    body: bytes
    status: int


class Disturbance:
    """A fault of requests whose path contains ``path``, the first ``times`` of them."""

    def __init__(self, fault: Fault, path: str, times: int, words: bytes) -> None:
        self.fault = fault
        self.path = path
        self.left = times
        self.words = words
        self.ended = asyncio.Event()
        self.reached = 0
        self.met: list[Met] = []


class HttpProxy(Server):
    """Passes requests of HTTP/1.1 on to an agent. A test disturbs them from another thread."""

    def __init__(self, port: int) -> None:
        super().__init__(self._serve_client)
        self.target = port
        self.statuses: Counter[int] = Counter()  # of the agent's answers to publishes
        self.polls: list[Poll] = []
        self._changed = threading.Condition()
        self._disturbances: list[Disturbance] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._open = asyncio.Event()
        self._open.set()

    def disturb(
        self, fault: Fault, path: str = PUBLISH, *, times: int = 1, words: bytes = b""
    ) -> Disturbance:
        """Let the next requests with this in their path, and in their body, meet a fault."""
        disturbance = Disturbance(fault, path, times, words)
        with self._changed:
            self._disturbances.append(disturbance)
        return disturbance

    def wait_reached(self, disturbance: Disturbance, times: int = 1) -> None:
        """Wait until so many requests have met the fault."""
        with self._changed:
            assert self._changed.wait_for(lambda: disturbance.reached >= times, DEADLINE), (
                f"{disturbance.reached} of {times} requests met {disturbance.fault}"
            )

    def end(self, disturbance: Disturbance) -> list[Met]:
        """End a fault. Requests that it holds go on; wait for the agent's answers to them."""
        with self._changed:
            disturbance.left = 0
            self._loop.call_soon_threadsafe(disturbance.ended.set)
            assert self._changed.wait_for(
                lambda: len(disturbance.met) == disturbance.reached, DEADLINE
            )
            self._disturbances.remove(disturbance)
            return disturbance.met

    @contextmanager
    def disturbed(
        self, fault: Fault, path: str = PUBLISH, *, times: int = 1_000_000
    ) -> Iterator[Disturbance]:
        """Let all requests with this in their path meet a fault, until the block ends."""
        disturbance = self.disturb(fault, path, times=times)
        try:
            yield disturbance
        finally:
            self.end(disturbance)

    def cut(self) -> None:
        """End all connections, and every new one at once."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._abort_all)

    def mend(self) -> None:
        self._is_cut = False

    def freeze(self) -> None:
        """Keep every request and every answer, until ``thaw`` lets them go on."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def thaw(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def _abort_all(self) -> None:
        for writer in self._connections:
            writer.transport.abort()

    def _meets(self, path: str, body: bytes) -> Disturbance | None:
        with self._changed:
            for each in self._disturbances:
                if each.left and each.path in path and each.words in body:
                    each.left -= 1
                    each.reached += 1
                    self._changed.notify_all()
                    return each
        return None

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._is_cut:
            return
        self._connections.add(writer)
        agent: asyncio.StreamWriter | None = None
        try:
            from_agent, agent = await asyncio.open_connection("127.0.0.1", self.target)
            while True:
                request = await _message(reader)
                await self._open.wait()
                path = request[0].split(b" ", 2)[1].decode()
                disturbance = self._meets(path, request[1])
                status = 0
                try:
                    reply = await self._carry_out(request, disturbance, from_agent, agent)
                    status = int(reply[9:12]) if reply else 0
                finally:
                    self._note(disturbance, request[1], status, path)
                if status == 200 and LEASE in path and request[0].startswith(b"POST"):
                    answered: dict[str, Any] = json.loads(reply.partition(b"\r\n\r\n")[2])
                    self.polls.append(Poll(**answered))
                if not reply or (disturbance and disturbance.fault is Fault.LOSE_ANSWER):
                    return
                await self._open.wait()
                writer.write(reply)
                await writer.drain()
        finally:
            self._connections.discard(writer)
            if agent is not None:
                agent.transport.abort()

    async def _carry_out(
        self,
        request: tuple[bytes, bytes],
        disturbance: Disturbance | None,
        from_agent: asyncio.StreamReader,
        agent: asyncio.StreamWriter,
    ) -> bytes:
        """Return the answer; empty: none."""
        fault = disturbance.fault if disturbance else None
        if fault is Fault.LOSE_REQUEST:
            return b""
        if fault is Fault.UNAVAILABLE:
            return _UNAVAILABLE
        if disturbance and fault is Fault.HOLD:
            await disturbance.ended.wait()
            # The agent may have ended its connection, which was idle meanwhile.
            from_agent, held = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                return await _ask(request, from_agent, held)
            finally:
                held.transport.abort()
        return await _ask(request, from_agent, agent)

    def _note(self, disturbance: Disturbance | None, body: bytes, status: int, path: str) -> None:
        with self._changed:
            if PUBLISH in path and status:
                self.statuses[status] += 1
            if disturbance is not None:
                passed_on = disturbance.fault in (Fault.HOLD, Fault.LOSE_ANSWER)
                disturbance.met.append(Met(body, status if passed_on else 0))
            self._changed.notify_all()


async def _ask(
    request: tuple[bytes, bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    """Return the answer; empty: the connection has ended."""
    writer.write(b"".join(request))
    with suppress(asyncio.IncompleteReadError):
        return b"".join(await _message(reader))
    return b""


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return head and body of a request or an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head, await reader.readexactly(int(length[1])) if length else b""
