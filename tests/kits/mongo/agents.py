"""Real agents on MongoDB, with producers and consumers in threads."""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kits.agents.agent import DEADLINE, Agent, Event, fold
from tests.kits.clock.moved import MovedClock
from tests.kits.clock.waiting import attempts
from tests.kits.processes.forked import run
from tests.kits.servers.mongo import MongoServer
from tests.kits.sse.stream import Stream

LEASE = "3s"
# Seconds, longer than an agent waits between two tries.
LONGEST_PAUSE = 60


def agent(
    folder: Path,
    url: str,
    kind: str,
    *flags: str,
    make: Callable[..., Agent] = Agent,
    **options: Any,
) -> Agent:
    return make(
        folder, "--mongo-url", url, "--log-collection", kind, "--lease", LEASE, *flags, **options
    )


def operation(number: int) -> dict[str, Any]:
    return {"event": "insert", "type": "video", "id": str(number)}


def new_epoch(url: str) -> "subprocess.CompletedProcess[str]":
    """Begin a new log in place of the plain one in this database."""
    command = [sys.executable, "-m", "oplogd", "--new-epoch", "--mongo-url", url]
    flags = ["--log-collection", "plain", "--lease", "500ms"]
    return run([*command, *flags], capture_output=True, text=True, timeout=DEADLINE)


def come_back(server: MongoServer, clock: MovedClock) -> None:
    """Start a server that was killed. Its agents wait no longer until they try again."""
    server.start()
    clock.move(LONGEST_PAUSE)


def wait_for(what: str, condition: Callable[..., object]) -> None:
    """Wait until the condition holds. ``what`` names it in the error of a time-out."""
    assert any(condition() for _ in attempts(2 * DEADLINE)), what


def is_folded(only: Agent) -> bool:
    """Return whether the states have the whole log. False if the store is slow to tell."""
    return bool(only.status()["store"].get("lag", {}).get("fold") == 0)


def adds_up(only: Agent) -> bool:
    """Return whether the status counts every operation that the agent ever had exactly once."""
    status = only.status()
    fates = sum(status[f"events_{fate}"] for fate in ("ingested", "error", "discarded"))
    kept: int = status["queue_size"] + status["spool"]["operations"]
    return bool(status["events_received"] + status["events_recovered"] == fates + kept)


class ResumingConsumer(threading.Thread):
    """Follows the stream until it has ``count`` operations.

    After every ``cut`` operations it resumes at the next agent, and also if an agent is gone or
    stops the stream.
    """

    def __init__(self, urls: Sequence[str], first: int, count: int, cut: int) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self._turn = first
        self._count = count
        self._cut = cut
        self.events: list[Event] = []
        self.error: BaseException | None = None
        self.established = threading.Event()

    def run(self) -> None:
        try:
            self._follow()
        except BaseException as error:
            self.error = error
            self.established.set()

    def _follow(self) -> None:
        last_id: str | None = None
        while len(self.events) < self._count:
            url = self._urls[self._turn % len(self._urls)]
            self._turn += 1
            with Stream(url, last_id, {"checkpoint": "1"}) as stream:
                self.established.set()
                cut = min(self._count, len(self.events) + self._cut)
                while len(self.events) < cut:
                    event = stream.next()
                    if event is None:
                        break
                    if event.event:
                        self.events.append(event)
                last_id = stream.last_id or None

    def result(self) -> list[Event]:
        self.join(4 * DEADLINE)
        if self.error is not None:
            raise self.error
        assert not self.is_alive(), f"{len(self.events)} of {self._count} operations came"
        return self.events


def run_all(works: Sequence[Callable[[], None]]) -> None:
    """Run these at once, each in a thread. Raise the first error of any of them."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * DEADLINE)
        assert not thread.is_alive(), "a producer did not end"
    if errors:
        raise errors[0]


def replicated(source: Agent) -> dict[str, str]:
    """Return the live objects by data, as of a full replication."""
    return fold(source.replicate().values())
