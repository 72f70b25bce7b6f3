"""Committed streams that a pointer holds: until its decision, its rollback, or its time-out."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.e2e.pointers.pointers import (
    TEPHRA,
    Pointer,
    entries,
    raw_stream,
    read_committed,
    wait_for_held,
    wait_for_read,
    wait_until_streams_are_held,
)
from tests.kits.agents.agent import Agent, Event
from tests.kits.agents.streams import ByteStream
from tests.kits.agents.topics import Polled, Topic, received
from tests.kits.agents.transactions import COMMITTED
from tests.kits.clock.moved import StoreClock
from tests.kits.contract.wire import RawStream
from tests.kits.servers.mongo import RunningMongo, new_database
from tests.kits.servers.stores import SORTS, StorePlace

QUERY = f"isolation={COMMITTED}&checkpoint=1"
TIMEOUT_SECONDS = 60
LARGE = 512 * 1024


class Clocked(NamedTuple):
    """Two agents on one store whose clock a test moves."""

    one: Agent
    two: Agent
    clock: StoreClock


@pytest.fixture(scope="module", params=["sqlite", "mongo-plain"])
def sort(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def clocked(
    sort: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clocked]:
    folder = tmp_path_factory.mktemp("agents")
    server, kind = SORTS[sort]
    place = StorePlace(folder / "oplog.db")
    if server is not None:
        running: RunningMongo = request.getfixturevalue(server)
        place = StorePlace(new_database(running.url), kind)
    clock = StoreClock(place, folder)
    flags = ("--heartbeat", "50ms", "--pointer-timeout", f"{TIMEOUT_SECONDS}s")
    with ExitStack() as stack:
        one, two = [stack.enter_context(clock.agent(*flags)) for _ in range(2)]
        yield Clocked(one, two, clock)


def messages(stream: RawStream, count: int) -> list[Polled]:
    """Return the next messages, without checkpoints."""
    found: list[Event] = []
    while len(found) < count:
        found += [each for each in events(stream.take(1)) if each.event]
    return received(found)


def events(blocks: list[bytes]) -> list[Event]:
    """Return blocks as events. A checkpoint has only an id."""
    made = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.decode().strip().split("\n"))
        made.append(Event(fields["id"], fields.get("event", ""), fields.get("data", "")))
    return made


def checkpoint(stream: RawStream) -> str:
    """Wait for three checkpoints. Return the one that came each time, with no event between.

    A heartbeat during a read of the store has none.
    """
    stream.next_heartbeat()
    blocks: list[bytes] = []
    for _ in range(100):
        blocks += stream.next_heartbeat()
        if len(blocks) >= 3:
            break
    assert len(blocks) == 3
    (only,) = set(events(blocks))
    assert only == Event(only.id, "", "")
    return only.id


@pytest.mark.parametrize("end", ["commit", "abort", "rollback", "time-out"])
def test_a_held_stream_goes_on_from_its_checkpoint(clocked: Clocked, end: str) -> None:
    one, two, clock = clocked
    topic = Topic(one, f"held/{end}").create()
    topics = [topic, Topic(two, topic.name)]
    pointer = Pointer(one, topic)
    with ExitStack() as stack:
        live = stack.enter_context(raw_stream(topics[1], QUERY))
        topic.publish("before")
        pointer.publish("direct")
        topic.publish("between")
        pointer.at(two).store("s1", "s2")
        pointer.publish()
        topic.publish("after")
        late = stack.enter_context(raw_stream(topics[0], QUERY, "0"))
        streams = [live, late]
        places = []
        for stream in streams:
            assert [each.payload for each in messages(stream, 1)] == ["before"]
            places.append(checkpoint(stream))
        for at, place in zip(topics, places, strict=True):
            resumed = stack.enter_context(raw_stream(at, QUERY, place))
            assert checkpoint(resumed) == place
            streams.append(resumed)
            wait_for_held(at, TEPHRA, "before")
            wait_until_streams_are_held(at.agent, at, TEPHRA, 2)
        topic.publish("end")
        rest = ["between", "after", "end"]
        match end:
            case "commit":
                pointer.at(two).commit()
                rest = ["direct", "between", "s1", "s2", "after", "end"]
            case "abort":
                pointer.at(two).abort()
            case "rollback":
                pointer.at(two).rollback()
            case _:
                clock.move(2 * TIMEOUT_SECONDS)
        got = [messages(stream, len(rest)) for stream in streams]
        assert [each.payload for each in got[0]] == rest
        assert got == [got[0]] * 4
        for at in topics:
            wait_until_streams_are_held(at.agent, at, TEPHRA, 0)
            for place in places:
                with at.stream(place, isolation=COMMITTED) as again:
                    assert received(again.take(len(rest))) == got[0]
        ends = {checkpoint(stream) for stream in streams}
        topic.publish("last")
        for stream in streams:
            assert [each.payload for each in messages(stream, 1)] == ["last"]
        for place in ends:
            with topics[1].stream(place, isolation=COMMITTED) as again:
                assert [each.payload for each in received(again.take(1))] == ["last"]
    everything = ["before", "direct", "between", "s1", "s2", "after", "end", "last"]
    for at in topics:
        match end:
            case "commit" | "rollback":
                wait_for_read(at, "before", *rest, "last")
            case "time-out":
                at.wait_for_payloads(*everything)
        # Uncommitted readers get aborted messages until the sweep removes them.
        assert read_committed(at).payloads == ["before", *rest, "last"]
    if end == "time-out":
        for agent in (one, two):
            assert pointer.at(agent).ask("publish", messages=["x"]).status == 409
            assert pointer.at(agent).ask("store", messages=["x"]).status == 409
            states = {each["state"] for each in entries(topic) if "pointer" in each}
            assert states == {"timed out"}
        timed_out = [agent.status()["pointers"]["timed_out"] for agent in (one, two)]
        assert sum(timed_out) == 1
        with topics[0].stream(places[0], isolation=COMMITTED) as again:
            assert pointer.at(two).report("commit").status == 200
            assert pointer.at(one).report("commit").status == 200
            assert pointer.at(one).report("abort").status == 409
            expected = [*rest, "last", "direct", "s1", "s2"]
            assert [each.payload for each in received(again.take(len(expected)))] == expected
        for at in topics:
            assert read_committed(at).payloads == ["before", *expected]
            at.wait_for_payloads(*everything)
    elif end == "rollback":  # it decides nothing
        pointer.commit()


# Not on a server that reads the messages of all topics for each request.
@pytest.mark.parametrize("sort", ["sqlite", "mongo-plain"], indirect=True, scope="module")
def test_a_stream_that_is_behind_never_gets_what_was_rolled_back_before_it_came_there(
    clocked: Clocked,
    sort: str,
) -> None:
    """It reads nothing before the rollback: what it has not been sent comes from memory."""
    one, two, _ = clocked
    topic = Topic(one, "behind/t").create()
    at = Topic(two, topic.name)
    pointer = Pointer(one, topic)
    with ExitStack() as stack:
        streams = [
            stack.enter_context(
                ByteStream(
                    two, "0", {"isolation": isolation}, path=f"{topic.path}/stream",
                    receive_buffer=4096,
                )
            )
            for isolation in ("read_uncommitted", COMMITTED)
        ]  # fmt: skip
        large = ["x" * LARGE] * 12  # more than the buffers of a connection hold
        for each in large:
            topic.publish(each)
        pointer.publish("direct")
        pointer.store("stored")
        pointer.publish()
        topic.publish("after")
        at.wait_for_payloads(*large, "direct", "stored", "after")
        pointer.rollback()
        at.wait_for_payloads(*large, "after")
        for stream in streams:
            assert [each.payload for each in received(stream.take(13))] == [*large, "after"]
