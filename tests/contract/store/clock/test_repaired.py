"""Positions from before a new epoch, when time has reached the stamps of then."""

import pytest

from oplogd.model.event_id import Millis
from oplogd.model.message_id import MessageId
from oplogd.model.pointer import Decision
from oplogd.store import Store
from oplogd.store.numbers import log_of
from oplogd.store.topics import Topic
from oplogd.stream.phases.start import sought, topic_start
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poller import Poller
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, named, payloads_of, publish
from tests.kits.store.pointing import TEPHRA, publish_under
from tests.kits.store.stepping import DAY, HOUR, poisoned, stand, swept

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


async def ids_of(store: Store, topic: Topic) -> list[MessageId]:
    entries = await entries_of(store.topics.log(topic))
    return [MessageId(each.ms, each.sequence) for each in entries]


async def has_gap(store: Store, topic: Topic, position: MessageId, *, inclusive: bool) -> bool:
    poller = Poller(store.topics, KnownTopics(store.topics), TopicCounters(), 100)
    answer = await poller.poll(topic.name, PollRequest(position.to_bytes(), inclusive))
    return answer.gap


@pytest.mark.parametrize("is_again", [False, True], ids=["in it", "created again"])
async def test_an_old_id_brings_a_gap_and_a_new_one_none(
    kit: Kit, store: Store, is_again: bool
) -> None:
    topic = await poisoned(kit, store, 2 * HOUR)
    await store.topics.change(NAME, 7 * 24 * HOUR)
    await publish(store.topics, topic, "x")
    (*_, old) = await ids_of(store, topic)
    if is_again:
        await store.topics.delete(NAME)
    await store.new_epoch()
    if is_again:
        topic = await store.topics.create(NAME, None)
    kit.clock.ms += 1000
    await publish(store.topics, topic, "a", "b")
    kit.clock.ms = old.ms - 10
    await publish(store.topics, topic, "within")
    kit.clock.ms += 7_200_000
    *_, within = await ids_of(store, topic)
    log = store.topics.log(topic)
    for position, is_gone in ((old, True), (within, False)):
        bounds = await log.locate(*sought(position))
        assert topic_start(position, bounds).reset is is_gone
        for inclusive in (False, True):
            assert await has_gap(store, topic, position, inclusive=inclusive) is is_gone


async def test_a_repair_takes_away_nothing_that_a_late_clock_has_dated(kit: Kit) -> None:
    """The machine began with a time long past. Stamps of then stay as they are."""
    store = await kit.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "old")
    await stand(kit, store, 60)
    await kit.close()
    kit.clock.jump(-30 * DAY)
    store = await kit.open()
    other = await store.topics.create(named("other"), 7 * DAY)
    for each in (topic, other):
        await publish(store.topics, each, "a")
    await stand(kit, store, 3600)
    kit.clock.jump(38 * DAY)
    await store.new_epoch()
    await stand(kit, store, 601)
    await swept(store)
    for each in (topic, other):
        assert (await payloads_of(store.topics, each))[-1] == "a"


@pytest.mark.parametrize("is_swept", [False, True], ids=["still there", "swept"])
async def test_a_repair_moves_what_a_forced_rollback_took_away(
    kit: Kit, store: Store, is_swept: bool
) -> None:
    """In a log whose number is used again."""
    await kit.used_logs(log_of(5, 3) - 1)
    topic = await poisoned(kit, store)
    await store.topics.change(NAME, 2 if is_swept else 7 * DAY)
    await publish_under(store, topic, TEPHRA, "taken")
    await store.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    await store.pointers.rollback(topic.log, TEPHRA, None, force=True)
    if is_swept:
        kit.clock.ms += 3000
        await publish(store.topics, topic, "last")
        await swept(store)
    await store.new_epoch()
    store = await kit.open()  # an agent ends after a repair
    kit.clock.ms += 1000
    await publish(store.topics, topic, "a")
    *_, new = await ids_of(store, topic)
    log = store.topics.log(topic)
    now = (await log.locate()).now_ms
    for position, is_gap in ((new, False), (Millis(now - 500), False), (Millis(1), True)):
        assert topic_start(position, await log.locate(*sought(position))).reset is is_gap
