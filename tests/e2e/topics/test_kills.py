"""Acknowledged messages survive kills of the agent, in order."""

import http.client
import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.agents.topics import Line, Polled, Topic
from tests.kits.models.properties import rounds
from tests.kits.servers.stores import StorePlace

NAMES = ("tests/one", "tests/two", "tests/three")
BATCH = 25


class Load:
    """Publishers that send single messages and batches until the agent is gone, without retries.

    Each has a prefix of its own and counts its messages up.
    """

    def __init__(self, topics: Sequence[Topic], numbers: Iterator[int]) -> None:
        # Payloads of acknowledged requests and of all batches, by topic.
        self.acknowledged: dict[str, list[str]] = defaultdict(list)
        self.batches: dict[str, list[list[str]]] = defaultdict(list)
        self.statuses: set[int] = set()
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._publish, args=(topic, f"p{next(numbers)}", size))
            for topic in topics
            for size in (1, 1, BATCH)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, count: int) -> None:
        with self._changed:
            done = self._changed.wait_for(
                lambda: sum(map(len, self.acknowledged.values())) >= count, DEADLINE
            )
        assert done, self.statuses

    def join(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()

    def _publish(self, topic: Topic, prefix: str, size: int) -> None:
        with closing(Line(topic)) as line:
            try:
                for first in itertools.count(step=size):
                    payloads = [f"{prefix}-{first + index}" for index in range(size)]
                    if size > 1:
                        self.batches[topic.name].append(payloads)
                    answer = line.publish(payloads)
                    with self._changed:
                        self.statuses.add(answer.status)
                        self.acknowledged[topic.name] += payloads
                        self._changed.notify()
            except (OSError, http.client.HTTPException):
                pass  # killed


def by_publisher(payloads: list[str]) -> dict[str, list[int]]:
    """Return the numbers that each publisher's messages have, in the order of the topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for payload in payloads:
        prefix, _, number = payload.partition("-")
        found[prefix].append(int(number))
    return found


@pytest.mark.parametrize(
    ("place", "kills", "least"),
    [
        ("sqlite", rounds(3, 6), 300),
        ("mongo-plain", rounds(2, 4), 300),
        ("mongo-capped", 1, 90),
    ],
    indirect=["place"],
)
def test_acknowledged_messages_survive_kills_under_load_in_order_and_exactly_once(
    place: StorePlace, kills: int, least: int, tmp_path: Path
) -> None:
    numbers = itertools.count()
    acknowledged: dict[str, list[str]] = defaultdict(list)
    batches: dict[str, list[list[str]]] = defaultdict(list)
    seen: dict[str, list[Polled]] = defaultdict(list)
    for kill in range(kills):
        with place.agent(tmp_path) as agent:
            topics = [Topic(agent, name) for name in NAMES]
            if kill == 0:
                for topic in topics:
                    topic.create()
            load = Load(topics, numbers)
            load.wait(least)
            agent.kill()
            load.join()
        assert load.statuses == {200}
        for topic in topics:
            acknowledged[topic.name] += load.acknowledged[topic.name]
            batches[topic.name] += load.batches[topic.name]
        with place.agent(tmp_path) as agent:
            for topic in topics:
                messages = Topic(agent, topic.name).poll_all()
                # An earlier reader's list is the beginning of this one.
                assert messages[: len(seen[topic.name])] == seen[topic.name]
                seen[topic.name] = messages
                check(messages, acknowledged[topic.name], batches[topic.name])


def check(messages: list[Polled], acknowledged: list[str], batches: list[list[str]]) -> None:
    payloads = [message.payload for message in messages]
    assert set(acknowledged) <= set(payloads)
    assert len(set(payloads)) == len(payloads)
    ids = [message.id for message in messages]
    assert ids == sorted(set(ids))
    for numbers in by_publisher(payloads).values():
        assert numbers == list(range(len(numbers)))
    for batch in batches:
        stored = set(batch) & set(payloads)
        assert len(stored) in (0, len(batch))
        if stored:
            first = payloads.index(batch[0])
            assert payloads[first : first + len(batch)] == batch
