"""Streams of topics: begin, resume, reset, checkpoints, end."""

import asyncio

import pytest

from oplogd.errors import StoreUnavailableError, TopicNotFoundError
from oplogd.model.event_id import Millis
from oplogd.model.message_id import MessageId
from oplogd.model.names import TopicName
from oplogd.store.topics import MessageBatch
from oplogd.stream.hub import TooManyClientsError
from oplogd.stream.lags import survey
from oplogd.stream.ring.frames import HEARTBEAT, TOPIC_RESET, checkpoint_frame
from oplogd.web.figures.consumers import consumer_members
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import (
    TTL,
    TopicWorld,
    end_of,
    id_of,
    last_id_of,
    message,
    read_all,
    told,
)


async def test_a_stream_without_a_position_gets_only_what_comes_next(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    await topic_world.publish(topic, "a")
    consumer = await topic_world.connect(topic)
    assert await read_all(consumer) == b""
    (mark,) = await topic_world.publish(topic, "b")
    await topic_world.advance()
    block = f'id: {id_of(mark)}\nevent: message\ndata: {{"payload":"b"}}\n\n'
    assert await read_all(consumer) == block.encode()
    assert (consumer.sent, consumer.lag()) == (1, (0, 0))
    assert consumer.topic == TopicName("ns", "t")


async def test_a_stream_resumes_at_every_block_boundary(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    for number in range(0, 30, 3):
        topic_world.clock.ms += number % 2
        await topic_world.publish(topic, *(f"m{each}" for each in range(number, number + 3)))
    whole = await read_all(await topic_world.connect(topic, Millis(0)))
    assert told(whole) == [f"m{number}" for number in range(30)]
    end = 0
    while end := whole.find(b"\n\n", end) + 2:
        if end == 1:
            break
        consumer = await topic_world.connect_at(topic, last_id_of(whole[:end]))
        assert await read_all(consumer) == whole[end:]


async def test_a_backlog_of_5_mb_resumes_at_any_id(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    made = [f"{number} ".ljust(1000, "x") for number in range(5_000)]
    marks = []
    for first in range(0, len(made), 500):
        topic_world.clock.ms += 1
        marks += await topic_world.publish(topic, *made[first : first + 500])
    whole = await read_all(await topic_world.connect(topic, Millis(0)))
    assert told(whole) == made
    for index in (0, 1, 499, 500, 2_717, 4_998, 4_999):
        consumer = await topic_world.connect_at(topic, id_of(marks[index]))
        assert told(await read_all(consumer)) == made[index + 1 :]


async def test_a_stream_from_a_time_begins_with_the_first_message_of_that_ms(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    await topic_world.publish(topic, "a")
    topic_world.clock.ms += 5
    marks = await topic_world.publish(topic, "b", "c")
    for ms, expected in (
        (marks[0].ms - 4, ["b", "c"]),
        (marks[0].ms, ["b", "c"]),
        (marks[0].ms + 1, []),
        (1, ["a", "b", "c"]),
    ):
        consumer = await topic_world.connect(topic, Millis(ms))
        assert told(await read_all(consumer)) == expected


@pytest.mark.parametrize("sweep", [False, True])
async def test_a_position_whose_next_messages_have_expired_gets_reset_and_the_oldest_message(
    topic_world: TopicWorld, sweep: bool
) -> None:
    topic = await topic_world.create()
    first, second = await topic_world.publish(topic, "a", "b")
    topic_world.clock.ms += TTL * 1000 + 1
    await topic_world.publish(topic, "c")
    if sweep:
        assert await topic_world.topics.sweep() == 2
    expected = {
        id_of(first): ["reset", "c"],
        id_of(second): ["c"],
        str(second.ms): ["reset", "c"],
        str(second.ms + 1): ["c"],
        "0": ["c"],
    }
    for last_id, blocks in expected.items():
        consumer = await topic_world.connect_at(topic, last_id)
        assert told(await read_all(consumer)) == blocks, last_id


async def test_a_slow_consumer_whose_messages_expire_meanwhile_gets_reset(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    await topic_world.publish(topic, "a", "b")
    await topic_world.advance()
    topic_world.clock.ms += TTL * 1000 + 1
    await topic_world.publish(topic, "c")
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["reset", "c"]


async def test_a_message_past_its_own_time_to_live_is_not_sent_and_is_no_gap(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    (a, *_) = await topic_world.publish(topic, "a", message("b", ttl=1), "c", message("d", ttl=2))
    await topic_world.advance()
    topic_world.clock.ms += 1_000
    for_later = await topic_world.connect_at(topic, id_of(a))
    assert told(await read_all(for_later)) == ["b", "c", "d"]
    topic_world.clock.ms += 1
    assert told(await read_all(consumer)) == ["a", "c", "d"]
    assert consumer.sent == 3
    assert told(await read_all(await topic_world.connect_at(topic, id_of(a)))) == ["c", "d"]
    topic_world.clock.ms += 1_000
    assert told(await read_all(await topic_world.connect(topic, Millis(0)))) == ["a", "c"]


async def test_void_entries_move_the_consumer_without_a_block(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await topic_world.publish(topic, *(message(str(number), ttl=1) for number in range(1200)))
    (last,) = await topic_world.publish(topic, "last")
    topic_world.clock.ms += 1_001
    consumer = await topic_world.connect(topic, Millis(0))
    assert told(await read_all(consumer)) == ["last"]
    assert consumer.phase.position == end_of(last)


async def test_two_topics_are_followed_by_one_follower(topic_world: TopicWorld) -> None:
    one, two = await topic_world.create("one"), await topic_world.create("two")
    consumers = [await topic_world.connect(one), await topic_world.connect(two)]
    await topic_world.publish(one, "1")
    await topic_world.publish(two, "2")
    await topic_world.publish(one, "3")
    await topic_world.advance()
    assert [told(await read_all(each)) for each in consumers] == [["1", "3"], ["2"]]
    assert topic_world.feeds.stats.feeds == 2


async def test_messages_of_other_agents_come_without_an_acknowledgement(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    await topic_world.topics.append([MessageBatch(topic.log, [message("other")])])
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["other"]


@pytest.mark.parametrize("known", [False, True])
async def test_a_deleted_topic_ends_its_streams_only(topic_world: TopicWorld, known: bool) -> None:
    """``known``: this agent deleted it, so it need not wait for the news."""
    gone, kept = await topic_world.create("gone"), await topic_world.create("kept")
    await topic_world.publish(gone, "a")
    ending = [await topic_world.connect(gone), await topic_world.connect(gone, Millis(0))]
    staying = await topic_world.connect(kept)
    await topic_world.topics.delete(gone.name)
    if known:
        topic_world.feeds.end(gone.log)
    else:
        await topic_world.advance()
    for consumer in ending:
        assert await read_all(consumer) == b""
        assert consumer.ending
    assert await read_all(staying) == b""
    assert not staying.ending
    assert topic_world.feeds.stats.feeds == 1
    with pytest.raises(TopicNotFoundError):
        await topic_world.connect(gone)
    assert topic_world.hub.refused["store"] == 0


async def test_the_streams_of_a_topic_that_this_agent_deleted_end_although_the_store_is_away(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    topic_world.feeds.end(topic.log)
    topic_world.topics.trouble = StoreUnavailableError("away")
    assert await read_all(consumer) == b""
    assert consumer.ending


async def test_ids_of_a_deleted_generation_bring_reset(topic_world: TopicWorld) -> None:
    old = await topic_world.create()
    first, last = await topic_world.publish(old, "a", "b")
    await topic_world.topics.delete(old.name)
    topic_world.clock.ms += 1
    new = await topic_world.create()
    for last_id in (id_of(first), id_of(last)):
        assert await read_all(await topic_world.connect_at(new, last_id)) == TOPIC_RESET
    await topic_world.publish(new, "c")
    await topic_world.advance()
    consumer = await topic_world.connect_at(new, id_of(first))
    assert told(await read_all(consumer)) == ["reset", "c"]
    assert told(await read_all(await topic_world.connect(new, Millis(last.ms)))) == ["c"]


async def test_checkpoints_name_the_place_that_was_reached(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    beginning = (await topic_world.topics.log(topic).locate()).head
    consumer = await topic_world.connect(topic, checkpoints=True)
    assert await read_all(consumer) == checkpoint_frame(end_of(beginning))
    marks = await topic_world.publish(topic, "a", message("b", ttl=1))
    await topic_world.advance()
    topic_world.clock.ms += 1_001
    assert told(await read_all(consumer)) == ["a"]
    consumer.heartbeat = 0
    assert await awaited(consumer) == HEARTBEAT + checkpoint_frame(end_of(marks[-1]))
    again = await topic_world.connect_at(topic, id_of(beginning))
    assert told(await read_all(again)) == ["a"]


async def test_a_reset_needs_no_checkpoint(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await topic_world.publish(topic, "a")
    consumer = await topic_world.connect(topic, MessageId(1, 0), checkpoints=True)
    assert told(await read_all(consumer)) == ["reset", "a"]


async def test_streams_of_topics_count_among_all_clients(
    topic_world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = topic_world
    monkeypatch.setattr(world.hub, "max_clients", 1)
    topic = await world.create()
    consumer = await world.connect(topic)
    with pytest.raises(TooManyClientsError):
        await world.connect(topic)
    assert world.hub.refused["max_clients"] == 1
    world.hub.disconnect(consumer)
    await world.connect(topic)


async def test_a_stream_waits_while_the_store_is_away(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    (mark,) = await topic_world.publish(topic, "a")
    consumer = await topic_world.connect(topic, Millis(0))
    topic_world.topics.trouble = StoreUnavailableError("away")
    with pytest.raises(StoreUnavailableError):
        await read_all(consumer)
    with pytest.raises(StoreUnavailableError):
        await topic_world.connect(topic)
    assert topic_world.hub.refused["store"] == 1
    topic_world.topics.trouble = None
    assert told(await read_all(consumer)) == ["a"]
    assert consumer.phase.position == end_of(mark)


async def test_a_stream_that_is_opened_while_the_store_is_away_leaves_nothing_behind(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    topic_world.topics.trouble = StoreUnavailableError("away")
    with pytest.raises(StoreUnavailableError):
        await topic_world.connect(topic)
    topic_world.topics.trouble = None
    consumer = await topic_world.connect(topic)
    await topic_world.publish(topic, "a")
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["a"]
    assert len(topic_world.hub.consumers) == 1


async def test_many_streams_share_what_they_take(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    consumers = [await topic_world.connect(topic) for _ in range(3)]
    await topic_world.publish(topic, "a", message("b", ttl=1), "c")
    await topic_world.advance()
    assert told(await read_all(consumers[0])) == ["a", "b", "c"]
    assert told(await read_all(consumers[1])) == ["a", "b", "c"]
    topic_world.clock.ms += 1_001
    assert told(await read_all(consumers[2])) == ["a", "c"]


async def test_two_streams_that_open_a_topic_together_share_its_feed(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    one, two = await asyncio.gather(topic_world.connect(topic), topic_world.connect(topic))
    await topic_world.publish(topic, "a")
    await topic_world.advance()
    assert [told(await read_all(each)) for each in (one, two)] == [["a"], ["a"]]


async def test_status_names_the_topic_of_a_consumer(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    mark, *_ = await topic_world.publish(topic, "a", "b", "c")
    await topic_world.advance()
    lags = await survey(topic_world.hub.consumers, mark.ms + 500)
    (row,) = (await consumer_members(lags))["consumers"]
    assert (row["topic"], row["lag"]) == ("ns/t", {"operations": 3, "seconds": 0.5})
    assert told(await read_all(consumer)) == ["a", "b", "c"]
    assert consumer.lag() == (0, 0)
