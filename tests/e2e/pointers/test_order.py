"""Readers of a random history of all kinds of messages get one order, at all agents."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pointers.pointers import Pointer, agents_on, read, read_committed, read_snapshot
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.topics import Polled, Topic, received
from tests.kits.agents.transactions import COMMITTED, Txn, records
from tests.kits.mongo.agents import wait_for
from tests.kits.servers.stores import StorePlace

WRITERS = 4
KINDS = ("plain", "own", "direct", "stored")


class Manager:
    """A transaction manager: gives pointers and snapshots."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._open: set[int] = set()
        self._invalid: set[int] = set()

    def begin(self) -> int:
        with self._lock:
            self._last += 1
            self._open.add(self._last)
            return self._last

    def end(self, pointer: int, *, is_committed: bool) -> None:
        with self._lock:
            self._open.remove(pointer)
            if not is_committed:
                self._invalid.add(pointer)

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        """Return the read pointer and the lists of a reader that begins now."""
        with self._lock:
            return self._last, {"inProgress": sorted(self._open), "invalid": sorted(self._invalid)}


class History:
    """Writes messages of random kinds. Keeps those that must be read, and those that must not."""

    def __init__(self, manager: Manager, topic: Topic, agents: list[Agent], seed: int) -> None:
        self._manager = manager
        self._topic = topic
        self._agents = agents
        self._choose = random.Random(seed)
        self._seed = seed
        self.committed: list[list[str]] = []  # of each step
        self.aborted: set[str] = set()
        self.rolled_back: set[str] = set()

    def write(self, steps: int) -> None:
        for step in range(steps):
            # Each writer begins with another kind: then none is missing.
            kind = KINDS[(self._seed + step) % 4] if step < 4 else self._choose.choice(KINDS)
            count = self._choose.randint(1, 4)
            made = [f"{kind} {self._seed}.{step}.{number}" for number in range(count)]
            if getattr(self, f"_{kind}")(made):
                self.committed.append(made)
            else:
                self.aborted.update(made)

    def _agent(self) -> Agent:
        return self._choose.choice(self._agents)

    def _is_lucky(self) -> bool:
        return self._choose.random() < 0.7

    def _plain(self, made: list[str]) -> bool:
        Topic(self._agent(), self._topic.name).publish(*made)
        return True

    def _own(self, made: list[str]) -> bool:
        txn = Txn.begin(self._agent())
        txn.at(self._agent()).write(*records(self._topic, *made))
        if not self._is_lucky():
            txn.at(self._agent()).abort()
            return False
        txn.at(self._agent()).commit(len(made))
        return True

    def _direct(self, made: list[str]) -> bool:
        number = self._manager.begin()
        for each in made:
            Pointer(self._agent(), self._topic, number).publish(each)
        return self._end(number, made)

    def _stored(self, made: list[str]) -> bool:
        number = self._manager.begin()
        for each in made:
            Pointer(self._agent(), self._topic, number).store(each)
        Pointer(self._agent(), self._topic, number).publish()
        return self._end(number, made)

    def _end(self, number: int, made: list[str]) -> bool:
        is_committed = self._is_lucky()
        pointer = Pointer(self._agent(), self._topic, number)
        if not is_committed and self._choose.random() < 0.5:
            pointer.rollback()
            self.rolled_back.update(made)
        self._manager.end(number, is_committed=is_committed)
        pointer.at(self._agent()).report("commit" if is_committed else "abort")
        return is_committed


@pytest.mark.parametrize(
    ("place", "steps"),
    [("sqlite", 12), ("mongo-plain", 14)],
    indirect=["place"],
)
def test_readers_with_and_without_a_snapshot_get_all_committed_messages_in_one_order(
    place: StorePlace, steps: int, tmp_path: Path
) -> None:
    """While the history is written, every poll of them is a beginning of the final list."""
    with ExitStack() as stack:
        agents = stack.enter_context(agents_on(place, tmp_path, 3))
        topics = [Topic(agent, "order/t") for agent in agents]
        topics[0].create()
        pool = stack.enter_context(ThreadPoolExecutor(WRITERS + 1))
        streams = [stack.enter_context(topic.stream(isolation=COMMITTED)) for topic in topics]
        manager = Manager()
        histories = [History(manager, topics[0], agents, seed) for seed in range(WRITERS)]
        done = threading.Event()
        reader = pool.submit(read_meanwhile, topics, manager, done)
        writers = [pool.submit(history.write, steps) for history in histories]
        try:
            for writer in writers:
                writer.result(2 * DEADLINE)
        finally:
            done.set()
        topics[0].publish("end")
        final = wait_for_end(topics[0])
        check_contents([each.payload for each in final], histories)
        for topic, stream in zip(topics, streams, strict=True):
            assert received(stream.take(len(final))) == final
            assert wait_for_end(topic) == final
            assert read_committed(topic, limit=7).messages == final
            read_pointer, lists = manager.snapshot()
            assert read_snapshot(topic, read_pointer, **lists).messages == final
            assert read_snapshot(topic, read_pointer, limit=7, **lists).messages == final
            with topic.stream("0", isolation=COMMITTED) as late:
                assert received(late.take(len(final))) == final
        check_uncommitted(topics, final, histories)
        check_beginnings(reader.result(DEADLINE), final)


def read_meanwhile(
    topics: list[Topic], manager: Manager, done: threading.Event
) -> list[list[Polled]]:
    """Read at one agent after another, with and without a snapshot."""
    found = []
    for topic in cycle(topics):
        if done.is_set():
            break
        read_pointer, lists = manager.snapshot()
        found.append(read_snapshot(topic, read_pointer, limit=50, **lists).messages)
        found.append(read_committed(topic, 50).messages)
    return found


def check_beginnings(found: list[list[Polled]], final: list[Polled]) -> None:
    assert len(found) >= 2
    for each in found:
        assert each == final[: len(each)]


def wait_for_end(topic: Topic) -> list[Polled]:
    """Wait until an agent knows the last message. Return all that a committed reader gets."""
    wait_for(f"the end of {topic.name}", lambda: read_committed(topic).payloads[-1:] == ["end"])
    return read_committed(topic).messages


def check_contents(payloads: list[str], histories: list[History]) -> None:
    """Demand everything that has committed, once, in the order of each writer."""
    for history in histories:
        made = [payload for step in history.committed for payload in step]
        own = [each for each in payloads if each in set(made)]
        assert own == made
        assert not history.aborted & set(payloads)
    count = sum(len(step) for history in histories for step in history.committed)
    assert len(payloads) == count + 1


def check_uncommitted(topics: list[Topic], final: list[Polled], histories: list[History]) -> None:
    """Demand the same messages, and the same places of all but our own transactions' records.

    Streams get them from the memory of their agents. The sweep may remove what was aborted.
    """
    rolled_back: set[str] = set().union(*(each.rolled_back for each in histories))
    aborted: set[str] = set().union(*(each.aborted for each in histories))
    assert rolled_back
    lists = [read(topic).messages for topic in topics]
    for topic in topics:
        with topic.stream("0") as late:
            messages = received(late.take(1))
            while messages[-1].payload != "end":
                messages += received(late.take(1))
        lists.append(messages)
    for messages in lists:
        assert not rolled_back & {each.payload for each in messages}
    lists = [[each for each in messages if each.payload not in aborted] for messages in lists]
    assert lists == [lists[0]] * len(lists)
    assert {each.payload for each in lists[0]} == {each.payload for each in final}
    assert [each for each in lists[0] if not each.payload.startswith("own")] == [
        each for each in final if not each.payload.startswith("own")
    ]
