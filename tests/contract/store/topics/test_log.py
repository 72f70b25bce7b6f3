"""The log of a topic in every store: append, read, locate, ids."""

import asyncio

import pytest

from oplogd.errors import LogReplacedError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MAX_SEQUENCE
from oplogd.store.topics import MessageBatch, Placed, Refused, TopicEntry, Topics
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import KITS, Kit
from tests.kits.store.messages import (
    NAME,
    entries_of,
    ids,
    mark,
    messages,
    named,
    payloads,
    payloads_of,
    publish,
    publish_all,
)
from tests.kits.topics.messages import of_json


async def test_a_new_topic_is_empty_and_begins_now(topics: Topics) -> None:
    log = topics.log(await topics.create(NAME, None))
    beginning = Mark(0, START_MS, 0)
    assert (await log.locate())[:6] == (beginning, beginning, beginning, START_MS, 0, 0)
    assert await log.read(0, 10) == []


async def test_messages_come_out_as_they_went_in_numbered_from_one(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, None)
    topic_kit.clock.ms += 1
    placed = await publish(topics, topic, "a", "b")
    assert placed == Placed(Mark(1, START_MS + 1, 0), Mark(2, START_MS + 1, 1))
    topic_kit.clock.ms += 5
    assert await publish(topics, topic, "c") == Placed(*[Mark(3, START_MS + 6, 0)] * 2)
    assert await topics.log(topic).read(0, 10) == [
        TopicEntry(1, START_MS + 1, "message", '{"payload":"a"}', 0, 0),
        TopicEntry(2, START_MS + 1, "message", '{"payload":"b"}', 1, 0),
        TopicEntry(3, START_MS + 6, "message", '{"payload":"c"}', 0, 0),
    ]


async def test_the_first_message_in_the_ms_of_the_creation_follows_the_beginning(
    topics: Topics,
) -> None:
    topic = await topics.create(NAME, None)
    beginning = (await topics.log(topic).locate()).front
    assert (await publish(topics, topic, "a")).first == Mark(1, START_MS, beginning.sequence + 1)


async def test_appending_nothing_changes_nothing(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    assert await topics.append([]) == []
    assert (await topics.log(topic).locate()).head.offset == 0


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_messages_of_any_content_are_kept(topics: Topics) -> None:
    contents: list[object] = [
        "",
        "a b\tc",
        "line\nline\r\nline\x85\u2028\u2029",
        "é€😀\ufffe",
        "\x00\x01\x1f\x7f",
        '"\\ \\u0000 \\n',
        "'; DROP TABLE entries; --",
        "$x.y {$set: 1}",
        "[1, 2]",
        '{"payload": 1}',
        "void 1 2 3",
        {"payload": None},
        {"payload": "p", "key": "k\x00 \n", "headers": [["a", "1"], ["a", ""]]},
        {"payload": "/wBh", "encoding": "base64"},
    ]
    topic = await topics.create(NAME, None)
    made = [of_json(each) for each in contents]
    for each in made:
        await publish_all(topics, topic, [each, each])
    read = await topics.log(topic).read(0, 100)
    assert [entry.data for entry in read] == [each.data.decode() for each in made for _ in range(2)]


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_a_read_begins_past_its_offset_and_keeps_its_limit(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    await publish(topics, topic, *range(10))
    log = topics.log(topic)
    assert payloads(await log.read(4, 3)) == ["4", "5", "6"]
    assert payloads(await log.read(8, 3)) == ["8", "9"]
    assert await log.read(10, 3) == []
    assert await log.read(99, 3) == []


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_long_messages_are_read_in_pages_of_about_a_megabyte(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    made = [str(number) * 60_000 for number in range(10)] * 4
    await publish(topics, topic, *made)
    page = await topics.log(topic).read(0, 1000)
    assert 1 <= len(page) < 40
    assert await payloads_of(topics, topic) == made


async def test_a_read_returns_a_message_of_any_length(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    longest = "x" * (1 << 20)
    await publish(topics, topic, longest, longest)
    assert payloads(await topics.log(topic).read(0, 1000))[0] == longest
    assert await payloads_of(topics, topic) == [longest] * 2


async def test_topics_are_numbered_independently_and_keep_their_messages_apart(
    topics: Topics,
) -> None:
    one, two = await topics.create(named("one"), None), await topics.create(named("two"), None)
    outcomes = await topics.append(
        [
            MessageBatch(two.log, messages("ab")),
            MessageBatch(one.log, messages("cde")),
            MessageBatch(two.log, messages("f")),
        ]
    )
    placed = [outcome for outcome in outcomes if isinstance(outcome, Placed)]
    assert [(each.first.offset, each.last.offset) for each in placed] == [(1, 2), (1, 3), (3, 3)]
    assert await payloads_of(topics, one) == ["c", "d", "e"]
    assert await payloads_of(topics, two) == ["a", "b", "f"]


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_placed_marks_are_the_marks_of_the_entries(topic_kit: Kit, topics: Topics) -> None:
    made = [await topics.create(named(str(number)), None) for number in range(5)]
    topic_kit.clock.ms += 1
    batches = [
        MessageBatch(made[number % 5].log, messages(range(number % 3 + 1))) for number in range(40)
    ]
    outcomes = await topics.append(batches)
    read = {topic.log: await entries_of(topics.log(topic)) for topic in made}
    for batch, outcome in zip(batches, outcomes, strict=True):
        assert isinstance(outcome, Placed)
        entries = read[batch.log][outcome.first.offset - 1 : outcome.last.offset]
        assert (mark(entries[0]), mark(entries[-1])) == outcome
        assert [entry.data.encode() for entry in entries] == [m.data for m in batch.messages]


async def test_refused_batches_do_not_disturb_the_others(topics: Topics) -> None:
    kept, gone = await topics.create(named("kept"), None), await topics.create(named("gone"), None)
    await topics.delete(gone.name)
    outcomes = await topics.append(
        [
            MessageBatch(gone.log, messages("ab")),
            MessageBatch(kept.log, messages("cd")),
            MessageBatch(gone.log, messages("e")),
            MessageBatch(kept.log, messages("f")),
            MessageBatch(8_000_000, messages("g")),
        ]
    )
    assert [outcome == Refused.DELETED for outcome in outcomes] == [True, False, True, False, True]
    assert payloads(await entries_of(topics.log(kept))) == ["c", "d", "f"]
    assert await topics.append([MessageBatch(gone.log, messages("h"))]) == [Refused.DELETED]


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_two_agents_share_one_dense_order_in_every_topic(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    made = [await topics.create(named(str(number)), None) for number in range(3)]

    async def go(agent: Topics, who: str) -> None:
        for round_ in range(10):
            await agent.append(
                [MessageBatch(topic.log, messages([f"{who}{round_}"] * 3)) for topic in made]
            )

    await asyncio.gather(go(topics, "a"), go(other, "b"))
    for topic in made:
        entries = await entries_of(other.log(topic))
        assert [entry.offset for entry in entries] == list(range(1, 61))
        assert sorted(set(ids(entries))) == ids(entries)
        assert await entries_of(topics.log(topic)) == entries


# --- Ids ---


async def test_ids_ascend_over_more_messages_than_a_ms_has_sequences(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, None)
    topic_kit.clock.ms += 1
    ms = topic_kit.clock.ms
    await publish(topics, topic, "first")
    first, count = MAX_SEQUENCE - 1_500, 3_000
    await topic_kit.used_sequences(topic, first)
    topics = (await topic_kit.open()).topics
    await publish(topics, topic, *range(count // 2))
    await publish(topics, topic, *range(count // 2))
    entries = await entries_of(topics.log(topic), limit=5000)
    assert ids(entries) == [
        (ms + number // (MAX_SEQUENCE + 1), number % (MAX_SEQUENCE + 1))
        for number in range(first, first + 1 + count)
    ]
    topic_kit.clock.ms += 1
    last = ids(entries)[-1]
    assert (await publish(topics, topic, "x")).first == (count + 2, last[0], last[1] + 1)
    topic_kit.clock.ms += 1
    assert (await publish(topics, topic, "x")).first == (count + 3, ms + 2, 0)


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_ids_ascend_when_the_clock_is_set_back(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    topic_kit.clock.ms += 1
    await publish(topics, topic, "a", "b")
    ms = topic_kit.clock.ms
    topic_kit.clock.ms -= 3_600_000
    await publish(topics, topic, "c")
    again = (await topic_kit.open()).topics
    await publish(again, topic, "d", "e")
    assert ids(await entries_of(again.log(topic))) == [(ms, number) for number in range(5)]


@pytest.mark.parametrize("back_ms", [0, 3_600_000])
async def test_ids_ascend_over_delete_and_create(
    topic_kit: Kit, topics: Topics, back_ms: int
) -> None:
    old = await topics.create(NAME, None)
    topic_kit.clock.ms += 1
    last = (await publish(topics, old, "a", "b")).last
    await topics.delete(NAME)
    topic_kit.clock.ms -= back_ms
    for _ in range(2):
        new = await topics.create(NAME, None)
        front = (await topics.log(new).locate()).front
        assert front.offset == 0
        assert (front.ms, front.sequence) >= (last.ms, last.sequence)
        first = (await publish(topics, new, "c")).first
        assert first.offset == 1
        assert (first.ms, first.sequence) > (last.ms, last.sequence)
        assert await payloads_of(topics, new) == ["c"]
        last = first
        await topics.delete(NAME)
        await topics.sweep()


# --- Positions ---


async def test_locate_finds_the_last_entry_at_or_before_a_time_and_sequence(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, None)
    for count in (3, 1, 2):
        topic_kit.clock.ms += 10
        await publish(topics, topic, *range(count))
    log = topics.log(topic)
    entries = await entries_of(log)
    bounds = await log.locate()
    assert bounds.front == bounds.at == Mark(0, START_MS, 0)
    assert bounds.head == mark(entries[-1])
    for ms in range(START_MS - 1, START_MS + 40):
        for sequence in (0, 1, 2, 3, MAX_SEQUENCE):
            before = [mark(e) for e in entries if (e.ms, e.sequence) <= (ms, sequence)]
            found = (await log.locate(ms, sequence)).at
            assert found == (before[-1] if before else bounds.front)


async def test_locate_finds_the_head_for_any_later_time(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    placed = await publish(topics, topic, "a", "b")
    times = [1 << 47, (1 << 48) - 1, (1 << 63) - 1, (1 << 64) - 1]
    found = {ms: (await topics.log(topic).locate(ms, MAX_SEQUENCE)).at for ms in times}
    assert found == dict.fromkeys(times, placed.last)


async def test_a_read_checks_the_time_at_its_offset(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    topic_kit.clock.ms += 5
    await publish(topics, topic, "a", "b")
    log = topics.log(topic)
    assert payloads(await log.read(0, 10, START_MS)) == ["a", "b"]
    assert payloads(await log.read(1, 10, START_MS + 5)) == ["b"]
    assert await log.read(2, 10, START_MS + 5) == []
    for after, at_ms in ((0, START_MS + 5), (1, START_MS), (2, START_MS), (3, START_MS + 5)):
        with pytest.raises(LogReplacedError):
            await log.read(after, 10, at_ms)
