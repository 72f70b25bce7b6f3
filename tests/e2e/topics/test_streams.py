"""A consumer of a topic gets each message once, or ``reset`` where messages are gone."""

import http.client
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, Event
from tests.kits.agents.streams import parse
from tests.kits.agents.topics import RESET, Topic, numbered, received
from tests.kits.clock.moved import StoreClock
from tests.kits.mongo.agents import wait_for
from tests.kits.servers.stores import StorePlace

CLEANUP = ("--topic-cleanup", "200ms")


def publish_until_stored(agents: Sequence[Agent], payload: str) -> None:
    """Publish until the newest agent acknowledges it."""

    def is_stored() -> bool:
        try:
            return Topic(agents[-1]).try_publish([payload]).status == 200
        except (OSError, http.client.HTTPException):
            return False

    wait_for("an answer", is_stored)


@pytest.mark.parametrize(
    ("place", "each"), [("sqlite", 60), ("mongo-plain", 40)],
    indirect=["place"],
)  # fmt: skip
def test_a_consumer_gets_each_message_once_over_restarts_and_kills_of_the_agent(
    place: StorePlace, each: int, tmp_path: Path
) -> None:
    ends = ("stop", "kill", "stop", "kill")
    sent = numbered(each * len(ends))
    events: list[Event] = []
    agents = [place.agent(tmp_path, *CLEANUP)]
    Topic(agents[0]).create()

    def publish() -> None:
        for payload in sent:
            publish_until_stored(agents, payload)

    def consume() -> None:
        while len(events) < len(sent):
            # A refused or broken connection: the agent is gone.
            with suppress(OSError, AssertionError):
                last_id = events[-1].id if events else "0"
                with Topic(agents[-1]).stream(last_id) as stream:
                    for event in islice(stream.blocks(), len(sent) - len(events)):
                        events.append(event)

    try:
        with ThreadPoolExecutor() as pool:
            working = [pool.submit(publish), pool.submit(consume)]
            for number, end in enumerate(ends):
                enough = each * number + each // 2
                wait_for("events", lambda enough=enough: len(events) > enough)
                if end == "stop":
                    assert agents[-1].stop() == 0
                agents[-1].kill()
                agents.append(place.agent(tmp_path, *CLEANUP))
            for work in working:
                work.result(4 * DEADLINE)
        stored = Topic(agents[-1]).poll_all()
    finally:
        agents[-1].kill()
    seen = received(events)
    assert seen == stored[: len(seen)]
    # A request whose answer was lost may have been stored. Then its message is there twice.
    assert list(dict.fromkeys(message.payload for message in stored)) == sent
    assert len(stored) <= len(sent) + len(ends)


def test_sweeps_restarts_and_deletions_are_announced_by_one_reset(
    place: StorePlace, tmp_path: Path
) -> None:
    clock = StoreClock(place, tmp_path)
    clock.stop(0)
    sent = numbered(40)
    with clock.agent(*CLEANUP) as agent:
        topic = Topic(agent).create(ttl=10)
        with topic.stream() as stream:
            topic.publish(*sent[:10])
            first = received(stream.take(10))
            clock.stop(20)
            topic.publish(*sent[10:20])
            second = received(stream.take(10))
        for position, missing in ((first[0], True), (first[8], True), (first[9], False)):
            with topic.stream(position.id) as stream:
                if missing:
                    assert stream.take(1) == [RESET]
                assert received(stream.take(10)) == second
        agent.kill()
    clock.stop(31)
    with clock.agent(*CLEANUP) as agent:
        topic = Topic(agent)
        with topic.stream(second[4].id) as stream, topic.stream(second[9].id) as complete:
            assert stream.take(1) == [RESET]
            topic.publish(*sent[20:30])
            third = received(stream.take(10))
            assert received(complete.take(10)) == third
            # A consumer that went away within the messages that expire next, and one after them.
            assert topic.poll_all() == third
        clock.stop(50)
        assert agent.stop() == 0
    with clock.agent(*CLEANUP) as agent:
        topic = Topic(agent)
        with topic.stream(third[9].id) as complete, topic.stream("0") as oldest:
            topic.publish(*sent[30:])
            fourth = received(complete.take(10))
            assert received(oldest.take(10)) == fourth
            topic.delete()
            assert list(complete.blocks()) == list(oldest.blocks()) == []
        assert topic.try_stream(fourth[-1].id).status == 404
        topic.create()
        with topic.stream(fourth[-1].id) as stream:
            assert stream.take(1) == [RESET]
            topic.publish("again")
            fifth = received(stream.take(1))
        every = [*first, *second, *third, *fourth, *fifth]
        assert [message.payload for message in every] == [*sent, "again"]
        assert [message.id for message in every] == sorted({message.id for message in every})


@pytest.mark.parametrize("place", ["sqlite", "mongo-plain"], indirect=True)
def test_the_body_of_a_backlog_resumes_at_any_id(place: StorePlace, tmp_path: Path) -> None:
    count = 2_000  # several reads of the store, and several writes to the connection
    with place.agent(tmp_path) as agent:
        topic = Topic(agent).create()
        sent = [f"{number} ".ljust(1_000, "é."[number % 2]) for number in range(count)]
        for first in range(0, count, 500):
            topic.publish(*sent[first : first + 500])
    with place.agent(tmp_path) as agent:  # nothing is in memory
        topic = Topic(agent)
        newest = topic.poll_all()[-1].id
        with topic.stream("0") as stream:
            body = stream.read_past(newest.encode())
        assert [message.payload for message in received(parse(body))] == sent
        blocks = [block + b"\n\n" for block in body.split(b"\n\n")[:-1]]
        assert len(body) > count * 1_000
        ends = list(accumulate(map(len, blocks)))
        for at in {0, 1, *range(2, count - 1, count // 40), count - 2}:
            id_ = parse(blocks[at])[0].id
            with topic.stream(id_) as stream:
                assert stream.read(len(body) - ends[at]) == body[ends[at] :]
