"""A proxy before an agent that holds, loses and refuses single requests, or all of them."""

import json
import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, BinaryIO, NamedTuple

from tests.kits.processes.logged import DEADLINE
from tests.kits.proxies.proxy import Proxy

PUBLISH = "/publish"
LEASE = "/v1/leases/"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REFUSAL = b'{"status": 503, "title": "as the test wants"}'
_UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_REFUSAL), _REFUSAL)
)


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
        self.is_ended = False
        self.reached = 0
        self.met: list[Met] = []


class HttpProxy(Proxy):
    """Passes requests of HTTP/1.1 on to an agent."""

    def __init__(self, port: int) -> None:
        self.statuses: Counter[int] = Counter()  # of the agent's answers to publishes
        self.polls: list[Poll] = []
        self._disturbances: list[Disturbance] = []
        super().__init__(port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def disturb(
        self, fault: Fault, path: str = PUBLISH, *, times: int = 1, words: bytes = b""
    ) -> Disturbance:
        """Let the next requests with this in their path, and in their body, meet a fault."""
        disturbance = Disturbance(fault, path, times, words)
        with self._lock:
            self._disturbances.append(disturbance)
        return disturbance

    def wait_reached(self, disturbance: Disturbance, times: int = 1) -> None:
        """Wait until so many requests have met the fault."""
        with self._lock:
            assert self._lock.wait_for(lambda: disturbance.reached >= times, DEADLINE), (
                f"{disturbance.reached} of {times} requests met {disturbance.fault}"
            )

    def end(self, disturbance: Disturbance) -> list[Met]:
        """End a fault. Requests that it holds go on; wait for the agent's answers to them."""
        with self._lock:
            disturbance.left = 0
            disturbance.is_ended = True
            self._lock.notify_all()
            assert self._lock.wait_for(
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

    def _meets(self, path: str, body: bytes) -> Disturbance | None:
        with self._lock:
            for each in self._disturbances:
                if each.left and each.path in path and each.words in body:
                    each.left -= 1
                    each.reached += 1
                    self._lock.notify_all()
                    return each
        return None

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        with client.makefile("rb") as requests, server.makefile("rb") as answers:
            while (request := _message(requests)) is not None:
                self._wait_thawed()
                head, body = request
                path = head.split(b" ", 2)[1].decode()
                disturbance = self._meets(path, body)
                status = 0
                try:
                    reply = self._carry_out(head + body, disturbance, server, answers)
                    status = int(reply[9:12]) if reply else 0
                finally:
                    self._note(disturbance, body, status, path)
                if status == 200 and LEASE in path and head.startswith(b"POST"):
                    answered: dict[str, Any] = json.loads(reply.partition(b"\r\n\r\n")[2])
                    self.polls.append(Poll(**answered))
                if not reply or (disturbance and disturbance.fault is Fault.LOSE_ANSWER):
                    return
                self._wait_thawed()
                client.sendall(reply)

    def _carry_out(
        self,
        request: bytes,
        disturbance: Disturbance | None,
        server: socket.socket,
        answers: BinaryIO,
    ) -> bytes:
        """Return the answer; empty: none."""
        fault = disturbance.fault if disturbance else None
        if fault is Fault.LOSE_REQUEST:
            return b""
        if fault is Fault.UNAVAILABLE:
            return _UNAVAILABLE
        if disturbance and fault is Fault.HOLD:
            with self._lock:
                self._lock.wait_for(lambda: disturbance.is_ended or self._is_closed)
            # The agent may have ended its connection, which was idle meanwhile.
            with self._connect() as fresh, fresh.makefile("rb") as file:
                return _ask(request, fresh, file)
        return _ask(request, server, answers)

    def _note(self, disturbance: Disturbance | None, body: bytes, status: int, path: str) -> None:
        with self._lock:
            if PUBLISH in path and status:
                self.statuses[status] += 1
            if disturbance is not None:
                passed_on = disturbance.fault in (Fault.HOLD, Fault.LOSE_ANSWER)
                disturbance.met.append(Met(body, status if passed_on else 0))
            self._lock.notify_all()


def _ask(request: bytes, server: socket.socket, answers: BinaryIO) -> bytes:
    """Return the answer; empty: the connection has ended."""
    server.sendall(request)
    return b"".join(_message(answers) or ())


def _message(file: BinaryIO) -> tuple[bytes, bytes] | None:
    """Return head and body of a request or an answer, None at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline()
        if not line.endswith(b"\n"):
            return None
        head += line
    length = _LENGTH.search(head)
    size = int(length[1]) if length else 0
    body = file.read(size)
    return (head, body) if len(body) == size else None
