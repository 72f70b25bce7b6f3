"""Time to live in every store: of a topic, of a message, of the store; and the sweep."""

import asyncio

import pytest

from oplogd.model.event_id import Mark
from oplogd.store.topics import DEFAULT_TTL, EntryKind, MessageBatch, Placed, Topic, Topics
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import KITS, Kit
from tests.kits.store.messages import (
    NAME,
    entries_of,
    mark,
    message,
    messages,
    named,
    payloads,
    payloads_of,
    publish,
    publish_all,
)


async def fill(kit: Kit, topics: Topics, topic: Topic, seconds: int) -> list[Mark]:
    """Publish a message each second: "1" one second after the start. Return their marks."""
    marks = []
    for number in range(1, seconds + 1):
        kit.clock.ms += 1000
        marks.append((await publish(topics, topic, number)).first)
    return marks


async def test_a_message_is_absent_one_ms_after_the_ttl_before_any_sweep(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, 5)
    log = topics.log(topic)
    placed = await publish(topics, topic, "a")
    topic_kit.clock.ms += 5000
    assert payloads(await log.read(0, 10)) == ["a"]
    assert (await log.locate()).front.offset == 0
    topic_kit.clock.ms += 1
    assert await log.read(0, 10) == []
    bounds = await log.locate()
    assert bounds.front == bounds.head == bounds.at == placed.last
    assert bounds.now_ms == topic_kit.clock.ms


async def test_a_large_message_has_its_own_ttl(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, 3600)
    await publish(topics, topic, "x" * 100_000, ttl=5)
    topic_kit.clock.ms += 5000
    assert await payloads_of(topics, topic) == ["x" * 100_000]
    topic_kit.clock.ms += 1
    assert await payloads_of(topics, topic) == [None]


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_the_front_is_the_newest_message_that_is_gone(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, 5)
    log = topics.log(topic)
    marks = await fill(topic_kit, topics, topic, 20)
    for sweep in (False, True):
        if sweep:
            await topics.sweep()
        bounds = await log.locate()
        assert bounds.front == bounds.at == marks[13]
        assert bounds.head == marks[19]
        for after in (0, 5, 14):
            assert payloads(await log.read(after, 10)) == ["15", "16", "17", "18", "19", "20"]
        assert payloads(await log.read(0, 2)) == ["15", "16"]
        assert payloads(await log.read(15, 2)) == ["16", "17"]
        assert (await log.locate(marks[5].ms)).at == marks[13]
        assert (await log.locate(marks[16].ms, marks[16].sequence)).at == marks[16]


async def test_a_topic_without_ttl_has_the_default(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    await publish(topics, topic, "a")
    topic_kit.clock.ms += DEFAULT_TTL * 1000
    assert await payloads_of(topics, topic) == ["a"]
    topic_kit.clock.ms += 1
    assert await payloads_of(topics, topic) == []


async def test_a_shorter_ttl_counts_at_once_for_every_agent(topic_kit: Kit, topics: Topics) -> None:
    other = (await topic_kit.open()).topics
    topic = await topics.create(NAME, 100)
    await fill(topic_kit, topics, topic, 20)
    log = other.log(topic)
    assert len(await log.read(0, 100)) == 20
    await topics.change(NAME, 5)
    assert payloads(await log.read(0, 100)) == ["15", "16", "17", "18", "19", "20"]
    assert (await log.locate()).front.offset == 14


@pytest.mark.parametrize("longer", [100, None])
@pytest.mark.parametrize("sweep", [False, True])
async def test_a_longer_ttl_brings_nothing_back(
    topic_kit: Kit, topics: Topics, longer: int | None, sweep: bool
) -> None:
    topic = await topics.create(NAME, 5)
    await fill(topic_kit, topics, topic, 20)
    if sweep:
        await topics.sweep()
    await topics.change(NAME, longer)
    left = [str(number) for number in range(15, 21)]
    for seconds in (0, 5, 74):
        topic_kit.clock.ms += 1000 * seconds
        await topics.sweep()
        assert await payloads_of(topics, topic) == left
        assert (await topics.log(topic).locate()).front.offset == 14


async def test_a_longer_ttl_after_a_shorter_one_brings_nothing_back(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, 100)
    await fill(topic_kit, topics, topic, 20)
    for ttl in (5, 100, 10, 3, None):
        await topics.change(NAME, ttl)
    assert await payloads_of(topics, topic) == ["17", "18", "19", "20"]


async def test_the_ttl_of_the_store_changes_the_topics_without_their_own(topic_kit: Kit) -> None:
    first = (await topic_kit.open(topic_ttl=100)).topics
    topic, own = await first.create(NAME, None), await first.create(named("own"), 100)
    await fill(topic_kit, first, topic, 20)
    for number in range(20):
        await publish(first, own, number)
    left = [str(number) for number in range(15, 21)]
    for ttl in (5, 100, None):  # a longer one brings nothing back
        other = (await topic_kit.open(topic_ttl=ttl)).topics
        for each in (first, other):
            assert await payloads_of(each, topic) == left
            assert len(await entries_of(each.log(own))) == 20
            assert (await each.log(topic).locate()).front.offset == 14


@pytest.mark.parametrize("by", ["change", "default"])
@pytest.mark.parametrize("kept", [0, 20])
async def test_a_message_after_a_longer_ttl_is_read_although_the_clock_was_set_back(
    topic_kit: Kit, by: str, kept: int
) -> None:
    first = (await topic_kit.open(topic_ttl=5)).topics
    topic = await first.create(NAME, None)
    marks = await fill(topic_kit, first, topic, kept)
    topic_kit.clock.ms += 3_600_000
    if by == "change":
        await first.change(NAME, 100_000)
        second = first
    else:
        second = (await topic_kit.open(topic_ttl=100_000)).topics
    topic_kit.clock.ms -= 3_500_000
    placed = await publish(second, topic, "new")
    for topics in (first, second):
        assert await payloads_of(topics, topic) == ["new"]
        bounds = await topics.log(topic).locate()
        assert (bounds.front.offset, bounds.head) == (len(marks), placed.last)


# --- The messages' own time to live ---


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_a_message_past_its_own_ttl_is_void_and_keeps_its_offset(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, 100)
    log = topics.log(topic)
    await publish_all(topics, topic, [message("a"), message("b", 5), message("c")])
    read = await log.read(0, 10)
    assert [entry.expires_ms for entry in read] == [0, read[1].ms + 5000, 0]
    topic_kit.clock.ms = read[1].ms + 5000
    assert payloads(await log.read(0, 10)) == ["a", "b", "c"]
    topic_kit.clock.ms += 1
    for _ in range(2):
        after = await log.read(0, 10)
        assert [mark(entry) for entry in after] == [mark(entry) for entry in read]
        assert [entry.event for entry in after] == [
            EntryKind.MESSAGE,
            EntryKind.VOID,
            EntryKind.MESSAGE,
        ]
        assert payloads(after) == ["a", None, "c"]
        assert (await log.locate()).front.offset == 0
        await topics.sweep()


async def test_void_messages_at_the_beginning_leave_no_gap(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, 100)
    await publish(topics, topic, "a", "b", ttl=5)
    await publish(topics, topic, "c")
    topic_kit.clock.ms += 6000
    for _ in range(2):
        assert await payloads_of(topics, topic) == [None, None, "c"]
        assert (await topics.log(topic).locate()).front.offset == 0
        await topics.sweep()


async def test_a_message_lives_no_longer_than_its_topic_allows(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, 5)
    placed = await publish(topics, topic, "a", ttl=100)
    topic_kit.clock.ms += 6000
    assert await payloads_of(topics, topic) == []
    assert (await topics.log(topic).locate()).front == placed.last


# --- Sweep ---


async def test_a_topic_goes_on_after_all_its_messages_were_swept(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, 5)
    log = topics.log(topic)
    await publish(topics, topic, *range(1200))
    topic_kit.clock.ms += 6000
    before = await log.locate()
    for _ in range(2):
        await topics.sweep()
        assert await log.locate() == before
        assert await log.read(0, 10) == []
    back_ms = 3_600_000
    topic_kit.clock.ms -= back_ms
    placed = await publish(topics, topic, "x")
    assert placed.first.offset == 1201
    assert (placed.first.ms, placed.first.sequence) > (before.head.ms, before.head.sequence)
    assert payloads(await log.read(1200, 10)) == ["x"]


async def test_a_sweep_beside_appends_and_reads_loses_nothing(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    old, new = await topics.create(named("old"), 5), await topics.create(named("new"), None)
    await publish(topics, old, *range(3000))
    topic_kit.clock.ms += 6000
    sweep = asyncio.create_task(other.sweep())
    for number in range(50):
        outcomes = await topics.append(
            [MessageBatch(topic.log, messages([number])) for topic in (old, new)]
        )
        assert all(isinstance(outcome, Placed) for outcome in outcomes)
    await sweep
    for topic in (old, new):
        assert await payloads_of(topics, topic) == [str(number) for number in range(50)]
    bounds = await topics.log(old).locate()
    assert (bounds.front.offset, bounds.head.offset) == (3000, 3050)
    assert bounds.front.ms == START_MS


async def test_a_sweep_leaves_deleted_topics_out_of_the_count_and_others_as_they_are(
    topics: Topics,
) -> None:
    gone, kept = await topics.create(named("gone"), None), await topics.create(named("kept"), None)
    for topic in (gone, kept):
        await publish(topics, topic, *range(600))
    await topics.delete(gone.name)
    for _ in range(2):
        await topics.sweep()
        assert (await topics.stats()).topics == 1
        assert len(await entries_of(topics.log(kept))) == 600
        assert await topics.current([gone.log]) == {}
