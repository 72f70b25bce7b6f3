"""Numbers of logs are used again, and nothing of the log before is seen behind them."""

import pytest

from oplogd.errors import NoLogNumberError, TopicNotFoundError
from oplogd.model.event_id import Mark, Millis
from oplogd.model.message_id import MessageId
from oplogd.model.pointer import Decision
from oplogd.store.numbers import (
    MAX_LOG,
    REST_MS,
    begin_of,
    generation_of,
    is_log,
    log_of,
    may_follow,
    number_of,
)
from oplogd.store.topics import MessageBatch, Refused, Topic, Topics
from oplogd.stream.phases.start import sought, topic_start
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.poll import PollStart
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, message, named, payloads_of, publish
from tests.kits.store.pointing import committed, publish_stored, publish_under, store_under
from tests.kits.store.transacting import StoreHandle, committed_with, payloads_committed, records

SECOND = log_of(1, 1)


def test_a_log_tells_its_number_and_its_beginning() -> None:
    assert (number_of(5), generation_of(5), begin_of(5)) == (5, 0, 0)
    assert (number_of(MAX_LOG), generation_of(MAX_LOG)) == (MAX_LOG, 0)
    third = log_of(5, 2)
    assert third == 2 * (MAX_LOG + 1) + 5
    assert (number_of(third), generation_of(third), begin_of(third)) == (5, 2, 2 << 32)
    assert [is_log(each) for each in (0, 1, MAX_LOG + 1, log_of(1, 255), log_of(1, 256))] == [
        False,
        True,
        False,
        True,
        False,
    ]
    most = begin_of(third) + (1 << 32) - (1 << 20)
    assert [may_follow(third, head) for head in (begin_of(third), most - 1, most)] == [
        True,
        True,
        False,
    ]


async def test_numbers_are_used_again_after_the_last_one_except_those_in_use(
    topic_kit: Kit, topics: Topics
) -> None:
    await topic_kit.used_logs(0)
    old = [await topics.create(named(f"old{n}"), None) for n in range(3)]
    assert [topic.log for topic in old] == [1, 2, 3]
    await topics.delete(old[1].name)
    assert await topics.sweep() == 0
    topic_kit.clock.ms += REST_MS + 1
    await topics.sweep()
    await topic_kit.used_logs(MAX_LOG - 1)
    made = [await topics.create(named(f"new{n}"), None) for n in range(3)]
    assert [topic.log for topic in made] == [MAX_LOG, log_of(2, 1), log_of(4, 1)]
    assert (await topics.stats()).numbers == 5
    assert await topics.current([2, log_of(2, 1), log_of(1, 1)]) == {made[1].log: made[1]}


async def again(kit: Kit, topics: Topics, name: str = NAME.topic) -> tuple[Topic, Topic]:
    """Return a topic that was deleted, and one created later whose log has the same number."""
    await kit.used_logs(0)
    old = await topics.create(named("gone"), None)
    await publish(topics, old, "a", "b", "c")
    await topics.delete(old.name)
    await topics.sweep()
    kit.clock.ms += REST_MS + 1
    await topics.sweep()
    await kit.used_logs(MAX_LOG)
    new = await topics.create(named(name), None)
    assert (old.log, new.log) == (1, SECOND)
    return old, new


async def test_a_log_that_is_gone_takes_and_shows_nothing_after_its_number_was_used_again(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    old, new = await again(topic_kit, topics)
    for each in (topics, other):
        assert await each.append([MessageBatch(old.log, [message("lost")])]) == [Refused.DELETED]
        with pytest.raises(TopicNotFoundError):
            await each.log(old).read(0, 10)
        with pytest.raises(TopicNotFoundError):
            await each.log(old).locate()
        await publish(each, new, "new")
        assert (await each.append([MessageBatch(old.log, [message("lost")])])) == [Refused.DELETED]
    assert await payloads_of(topics, new) == ["new", "new"]
    news = await topics.news({old.log: 3, new.log: begin_of(new.log)}, 5)
    assert sorted(news.logs) == [old.log, new.log]


async def test_a_new_log_with_an_old_number_has_no_gap_but_for_ids_of_the_name_before(
    topic_kit: Kit, topics: Topics
) -> None:
    _, new = await again(topic_kit, topics, "gone")
    log = topics.log(new)
    bounds = await log.locate()
    assert bounds.front == bounds.head == Mark(begin_of(new.log), topic_kit.clock.ms, 0)
    assert await log.read(0, 10) == []
    for position in (None, Millis(1)):
        bounds = await log.locate(*sought(position))
        assert not topic_start(position, bounds).reset
    assert not PollStart(PollRequest(start=1)).resolve(bounds).gap
    placed = await publish(topics, new, "a", "b")
    assert placed.first.offset == begin_of(new.log) + 1
    before = MessageId(topic_kit.clock.ms - REST_MS - 1, 2)
    bounds = await log.locate(before.ms, before.sequence)
    assert topic_start(before, bounds).reset
    assert await payloads_of(topics, new) == ["a", "b"]
    assert [each.offset for each in await log.read(placed.first.offset, 10)] == [placed.last.offset]


async def test_messages_leave_and_times_to_live_change_in_a_log_with_an_old_number(
    topic_kit: Kit, topics: Topics
) -> None:
    _, topic = await again(topic_kit, topics)
    topic = await topics.change(topic.name, 10)
    await publish(topics, topic, "old", "short", ttl=1)
    topic_kit.clock.ms += 5_000
    await publish(topics, topic, "young")
    topic_kit.clock.ms += 5_001
    assert await payloads_of(topics, topic) == ["young"]
    await topics.change(topic.name, 100)
    assert await topics.sweep() == 2
    assert await payloads_of(topics, topic) == ["young"]
    bounds = await topics.log(topic).locate()
    assert bounds.front.offset == begin_of(topic.log) + 2
    await topics.delete(topic.name)
    assert await topics.find(topic.name) is None
    await topics.sweep()
    assert await topics.sweep() == 0


async def test_transactions_and_pointers_work_in_a_log_with_an_old_number(
    topic_kit: Kit,
) -> None:
    store: StoreHandle = await topic_kit.open()
    topics = store.topics
    _, topic = await again(topic_kit, topics)
    await committed_with(store, *records(topic, "a", "b"))
    assert await payloads_committed(store, topic) == ["a", "b"]
    await publish_under(store, topic, 7, "c")
    await store_under(store, topic, 7, "d")
    await publish_stored(store, topic, 7)
    await publish_under(store, topic, 8, "never")
    await publish_under(store, topic, 9, "timed out")
    await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    await store.pointers.rollback(topic.log, 8, None)
    topic_kit.clock.ms += 900_001
    await store.pointers.keep()
    found = await committed(store, topic)
    assert found.payloads == ["a", "b", "c", "d"]
    assert found.held_by is None


async def test_a_number_rests_for_a_day_after_its_log_was_removed(
    topic_kit: Kit, topics: Topics, request: pytest.FixtureRequest
) -> None:
    """On SQLite nothing can arrive late, so nothing rests there."""
    rests = "mongo" in request.node.name
    await topic_kit.used_logs(0)
    await topics.create(NAME, None)
    await topics.delete(NAME)
    assert (await topics.stats()).numbers == 1
    await topics.sweep()
    topic_kit.clock.ms += REST_MS - 1
    await topics.sweep()
    assert (await topics.stats()).numbers == (1 if rests else 0)
    topic_kit.clock.ms += 1
    await topics.sweep()
    assert (await topics.stats()).numbers == 0


async def test_without_a_free_number_a_creation_is_refused_and_the_next_one_looks_further(
    topic_kit: Kit, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.sqlite.topics.catalogue._LOOKED_AT", 3)
    monkeypatch.setattr("oplogd.store.mongo.topics.catalogue._ATTEMPTS", 3)
    await topic_kit.used_logs(0)
    for n in range(4):
        await topics.create(named(f"old{n}"), None)
    await topic_kit.used_logs(log_of(0, 1))
    with pytest.raises(NoLogNumberError, match="8,388,607 are in use; delete topics"):
        await topics.create(NAME, None)
    assert await topics.find(NAME) is None
    assert (await topics.create(NAME, None)).log == log_of(5, 1)
