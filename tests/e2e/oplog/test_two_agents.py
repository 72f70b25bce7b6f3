"""Two agents on one SQLite file: one ends or dies, the other goes on, and no consumer notices."""

import http.client
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, Event
from tests.kits.agents.streams import ByteStream, offset_of, offsets, operation
from tests.kits.agents.topics import Topic
from tests.kits.models.properties import rounds

EACH = rounds(60, 300)
LAST = "the last"


class Producers:
    """Threads that send EACH operations and messages. They repeat one at the other agent."""

    def __init__(self, agents: list[Agent], pool: ThreadPoolExecutor) -> None:
        self._agents = agents
        self._half = threading.Barrier(5)
        self._done = [pool.submit(self._send, number) for number in range(4)]

    def wait_for_half(self) -> None:
        self._half.wait(DEADLINE)

    def wait(self) -> list[str]:
        """Return the acknowledged ids."""
        return [id_ for done in self._done for id_ in done.result(DEADLINE)]

    def _send(self, number: int) -> list[str]:
        agents = self._agents if number % 2 else self._agents[::-1]
        acknowledged = []
        for count in range(EACH):
            if count == EACH // 2:
                self._half.wait(DEADLINE)
            id_ = f"{number}-{count}"
            while True:
                try:
                    stored = agents[0].post(operation("insert", id_)) == 204
                    stored &= Topic(agents[0]).try_publish([id_]).status == 200
                except (OSError, http.client.HTTPException):
                    stored = False
                if stored:
                    break
                agents = agents[::-1]
            acknowledged.append(id_)
        return acknowledged


def following(agents: list[Agent], began: threading.Event) -> list[Event]:
    """Return all operations. Resume at the next agent when a stream ends."""
    events: list[Event] = []
    for agent in agents:
        with ByteStream(agent, events[-1].id if events else None) as stream:
            began.set()
            for event in stream.blocks():
                events.append(event)
                if event.operation["id"] == LAST:
                    return events
    raise AssertionError("the streams ended")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_other_agent_takes_over_producers_and_consumers(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Agent(tmp_path) as ends, Agent(tmp_path) as stays, ThreadPoolExecutor(8) as pool:
        Topic(ends).create()
        followers: list[Future[list[Event]]] = []
        for agents in ([ends, stays], [stays], [ends, stays]):
            began = threading.Event()
            followers.append(pool.submit(following, agents, began))
            assert began.wait(DEADLINE)
        producers = Producers([ends, stays], pool)
        producers.wait_for_half()
        ends.process.send_signal(number)
        acknowledged = producers.wait()
        assert ends.wait() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        assert stays.post(operation("insert", LAST)) == 204
        first, *others = (follower.result(DEADLINE) for follower in followers)
        assert all(other == first for other in others)
        assert offsets(first) == list(range(1, offset_of(first[-1].id) + 1))
        assert len(acknowledged) == 4 * EACH
        ids = [event.operation["id"] for event in first]
        assert set(ids) == {*acknowledged, LAST}
        assert len(ids) - len(set(ids)) <= 4, "each producer repeats only its unanswered operation"
        assert {message.payload for message in Topic(stays).poll_all()} == set(acknowledged)
        assert stays.status()["status"] == "OK"
