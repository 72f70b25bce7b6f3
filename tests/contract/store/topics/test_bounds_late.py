"""A pointer that was committed late is known for as long as its messages can be read."""

import pytest

from oplogd.errors import TransactionConflictError
from oplogd.model.pointer import Decision
from oplogd.store import Store
from oplogd.store.topics import DECIDED_MS, EntryKind, Topic
from tests.kits.store.bounded import BOUND, FIT, fill, settle
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, publish
from tests.kits.store.pointing import TIMEOUT_MS, publish_under

TTL = 3600


async def _kinds(store: Store, topic: Topic) -> set[str]:
    return {each.event for each in await entries_of(store.topics.log(topic))}


async def _time_out(kit: Kit, store: Store, topic: Topic) -> None:
    await publish_under(store, topic, 7, "late")
    kit.clock.ms += TIMEOUT_MS + 1
    assert await store.pointers.keep() == 1


async def _left_by_bytes(kit: Kit, store: Store) -> Topic:
    topic = await store.topics.create(NAME, None, max_bytes=BOUND)
    await _time_out(kit, store, topic)
    await fill(store.topics, topic, FIT - 4)
    await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    kit.clock.ms += DECIDED_MS
    while EntryKind.ABORT in await _kinds(store, topic):
        await fill(store.topics, topic, 1)
        await settle(store.topics)
    return topic


async def _left_by_time(kit: Kit, store: Store) -> Topic:
    topic = await store.topics.create(NAME, TTL)
    await _time_out(kit, store, topic)
    kit.clock.ms += TTL * 1000 - TIMEOUT_MS - 1000
    await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    kit.clock.ms += 45 * 60_000
    await publish(store.topics, topic, "more")
    await store.topics.sweep()
    return topic


async def test_a_rollback_after_a_late_commit_is_refused_or_takes_what_bytes_have_left(
    topic_kit: Kit,
) -> None:
    store = await topic_kit.open()
    await _rollback_is_judged(store, await _left_by_bytes(topic_kit, store))


@pytest.mark.parametrize("topic_kits", ["sqlite"], indirect=True)
async def test_a_rollback_after_a_late_commit_is_refused_or_takes_what_time_has_left(
    topic_kit: Kit,
) -> None:
    store = await topic_kit.open()
    await _rollback_is_judged(store, await _left_by_time(topic_kit, store))


async def _rollback_is_judged(store: Store, topic: Topic) -> None:
    assert _still_has_late(await _kinds(store, topic))
    with pytest.raises(TransactionConflictError, match="pointer 7 has committed"):
        await store.pointers.rollback(topic.log, 7, None)
    assert _still_has_late(await _kinds(store, topic))
    assert await store.pointers.rollback(topic.log, 7, None, force=True) is not None
    assert not _still_has_late(await _kinds(store, topic))


def _still_has_late(kinds: set[str]) -> bool:
    return EntryKind.LATE in kinds and EntryKind.ABORT not in kinds
