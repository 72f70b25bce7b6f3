"""A real agent in a process of its own, and minimal clients."""

import http.client
import json
import re
import socket
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.kits.clock.waiting import attempts
from tests.kits.processes.logged import DEADLINE as DEADLINE
from tests.kits.processes.logged import LoggedProcess
from tests.kits.sse.stream import Event as Event
from tests.kits.sse.stream import Stream

# The store did not set up its log within the time that a start waits for it.
_STORE_IS_SLOW = "the log is being set up; the agent starts without it"
_READY = re.compile(r"oplogd \S+ on (https?://\S+)(?: \([^)]+\))?, UDP (.+), store")


class Agent(LoggedProcess):
    """``oplogd`` with its store in ``folder``; ``flags`` are added to ``--listen localhost:0``."""

    # Arguments of Python. A test's own program can change the agent beyond its flags.
    program: Sequence[str] = ("-m", "oplogd")

    def __init__(
        self, folder: Path, *flags: str, environ: Mapping[str, str] | None = None, **popen: Any
    ) -> None:
        command = [*self.program, "--listen", "127.0.0.1:0"]
        if "--mongo-url" not in flags:
            command += ["--store", str(folder / "oplog.db")]
        self.url = ""
        self.udp_port = 0
        super().__init__([*command, *flags], environ, **popen)
        with self._logged:
            self._logged.wait_for(lambda: self._ended or self.url, DEADLINE)
        if not self.url:
            self.kill()
            raise AssertionError("the agent did not start:\n" + self.text())
        if self.count(_STORE_IS_SLOW) and self.url.startswith("http:"):
            self._wait_for_store()

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def send_udp(self, *operations: dict[str, Any] | bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for operation in operations:
                raw = operation if isinstance(operation, bytes) else json.dumps(operation).encode()
                sock.sendto(raw, ("127.0.0.1", self.udp_port))

    def post(self, body: Any, headers: Mapping[str, str] | None = None) -> int:
        """POST an operation, a list of them, or ``bytes`` as they are. Return the status."""
        return self.request("POST", "/", body, headers).status

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> "Answer":
        return ask(self.port, method, path, body, headers)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.request("GET", "/status").body)
        return status

    def wait_status(self, **wanted: Any) -> dict[str, Any]:
        """Wait until members of /status have these values, and return it."""
        for _ in attempts(DEADLINE):
            status = self.status()
            if all(status[name] == value for name, value in wanted.items()):
                return status
        raise AssertionError(f"wanted {wanted}, still {status}")

    def follow(self, last_event_id: str | None = None, **query: str) -> Stream:
        """Open a stream. It has its position in the log when this returns."""
        return Stream(self.url, last_event_id, query)

    def replicate(self, **query: str) -> dict[str, Event]:
        """Return the live objects of a full replication by key."""
        with self.follow("0", **query) as stream:
            objects: dict[str, Event] = {}
            for event in stream.until("live"):
                if event.event == "insert":
                    objects[event.key] = event
            return objects

    def _wait_for_store(self) -> None:
        """Wait until the agent takes requests, a deadline at most: a test may want it to hang."""
        for _ in attempts(DEADLINE):
            if self.request("GET", "/ready").status == 200:
                return

    def _add(self, line: str) -> None:
        if match := _READY.search(line):
            self.udp_port = int(match[2].rpartition(":")[2]) if match[2] != "off" else 0
            self.url = match[1]
        super()._add(line)


class NewAgent(Agent):
    """An agent in a new Python, for tests of its start, its end, its memory or its CPU time."""

    start = staticmethod(subprocess.Popen)


# The thread that ends an agent soon after its deadline comes a minute later.
TELLING = "from oplogd.host import stop\nstop._GRACE_SECONDS = 60.0\n"


class TellingAgent(Agent):
    """An agent that tells why its stop was cut short, even if its event loop was suspended then."""

    program = ("-c", f"{TELLING}from oplogd.cli import main\nmain()")


class Answer(NamedTuple):
    """``headers`` have lower-case names."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send a request on a new connection and return the answer."""
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        sent = {"Content-Type": "application/json"} if raw is not None else {}
        connection.request(method, path, raw, {**sent, **(headers or {})})
        response = connection.getresponse()
        return Answer(
            response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        )
    finally:
        connection.close()


@contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    """Lock the store of the agent in ``folder``: nothing else can write to it."""
    with closing(
        sqlite3.connect(folder / "oplog.db", isolation_level=None, timeout=DEADLINE)
    ) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def fold(events: Iterable[Event], state: dict[str, str] | None = None) -> dict[str, str]:
    """Return data by key of each live object after these events."""
    state = {} if state is None else state
    for event in events:
        if event.event == "reset":
            state.clear()
        elif event.event == "delete":
            state.pop(event.key, None)
        elif event.event in ("insert", "update"):
            state[event.key] = event.data
    return state
