"""Records of transactions, and what is just decided, stay while clocks step and agents stop."""

import pytest

from oplogd.model.pointer import Decision
from oplogd.store import Store
from oplogd.store.topics import DECIDED_MS, Full, MessageBatch, Topic
from tests.kits.store.bounded import BOUND, FIT, fill, large, numbers, settle
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, messages, publish
from tests.kits.store.pointing import committed, publish_under
from tests.kits.store.stepping import DAY, HOUR, YEARS, stand, swept
from tests.kits.store.transacting import begin, group_log, payloads_committed, records, write

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


async def written(store: Store, topic: Topic) -> int:
    """Begin a transaction of 15 minutes with two large records. Return it."""
    begun = await begin(store, timeout_ms=900_000)
    await write(store, begun, *records(topic, large(1), large(2)))
    return begun.id


async def crowded(store: Store, topic: Topic) -> None:
    """Publish until the topic is full, or nothing of before can have stayed without need."""
    for number in range(10, 10 + 2 * FIT):
        (outcome,) = await store.topics.append([MessageBatch(topic.log, messages([large(number)]))])
        if isinstance(outcome, Full):
            break
    await settle(store.topics)


async def read(store: Store, topic: Topic) -> list[int]:
    """Return which of the two records committed readers read."""
    return [each for each in numbers([*await payloads_committed(store, topic)]) if each < 3]


async def test_records_that_the_front_has_passed_stay_when_the_clock_steps(
    kit: Kit, store: Store
) -> None:
    topic = await store.topics.create(NAME, None, max_bytes=BOUND)
    id_ = await written(store, topic)
    kit.clock.jump(8 * DAY)
    await stand(kit, store, 61)
    await fill(store.topics, topic, 2 * FIT, first=10)
    await settle(store.topics)
    await stand(kit, store, 601)
    await swept(store)
    await store.transactions.commit(id_, 2)
    assert await read(store, topic) == [1, 2]


@pytest.mark.parametrize("max_bytes", [None, BOUND])
@pytest.mark.parametrize("commits_at", [61, 662])
async def test_records_stay_over_a_long_stop_in_a_transaction(
    kit: Kit, commits_at: int, max_bytes: int | None
) -> None:
    """A stop is no time for a time-out, so the transaction goes on."""
    store = await kit.open()
    topic = await store.topics.create(NAME, HOUR, max_bytes=max_bytes)
    await publish(store.topics, topic, large(5))
    id_ = await written(store, topic)
    await stand(kit, store, 100)
    await kit.close()
    kit.clock.ms += 8 * HOUR * 1000
    store = await kit.open()
    await stand(kit, store, 61)
    if commits_at == 61:
        await store.transactions.commit(id_, 2)
    elif max_bytes is not None:
        await fill(store.topics, topic, 2 * FIT, first=10)
        await settle(store.topics)
    await stand(kit, store, 601)
    await swept(store)
    if commits_at != 61:
        await store.transactions.commit(id_, 2)
    assert await read(store, topic) == [1, 2]
    await stand(kit, store, 2 * HOUR)
    await publish(store.topics, topic, "newest")
    await swept(store)
    await swept(store)
    kinds = [each.event for each in await entries_of(store.topics.log(topic))]
    assert kinds == ["message"], "they leave with their commit"


async def test_records_stay_when_the_front_passes_what_is_ahead(kit: Kit, store: Store) -> None:
    topic = await store.topics.create(NAME, 60)
    id_ = await written(store, topic)
    kit.clock.jump(YEARS)
    await stand(kit, store, 61)
    await publish(store.topics, topic, large(3))
    kit.clock.jump(-YEARS)
    for number in (4, 5):
        await stand(kit, store, 61)
        await publish(store.topics, topic, large(number))
    await swept(store)
    await store.transactions.commit(id_, 2)
    assert await read(store, topic) == [1, 2]


async def test_records_stay_before_a_commit_of_a_wrong_time(kit: Kit, store: Store) -> None:
    topic = await store.topics.create(NAME, None, max_bytes=BOUND)
    await publish(store.topics, topic, large(5))
    id_ = await written(store, topic)
    await stand(kit, store, 60)
    kit.clock.jump(YEARS)
    await stand(kit, store, 61)
    await fill(store.topics, topic, FIT // 2, first=10)
    await store.transactions.commit(id_, 2)
    kit.clock.jump(-YEARS)
    await stand(kit, store, 661)
    await fill(store.topics, topic, FIT // 2, first=30)
    await settle(store.topics)
    await stand(kit, store, 1800)
    await swept(store)
    assert await read(store, topic) == [1, 2]


@pytest.mark.parametrize("comes_back", [700, 0])
async def test_what_is_just_decided_stays_in_a_topic_that_is_ahead(
    kit: Kit, store: Store, comes_back: int
) -> None:
    """``comes_back``: seconds before the decision; 0: right after it."""
    topic = await store.topics.create(NAME, None, max_bytes=BOUND)
    await group_log(store)
    kit.clock.jump(YEARS)
    await stand(kit, store, 300)
    await publish(store.topics, topic, large(3))
    if comes_back:
        kit.clock.jump(-YEARS)
        await stand(kit, store, comes_back)
    await store.transactions.commit(await written(store, topic), 2)
    if not comes_back:
        kit.clock.jump(-YEARS)
        await stand(kit, store, 0)
    await crowded(store, topic)
    assert await read(store, topic) == [1, 2]
    await stand(kit, store, DECIDED_MS / 1000)
    await crowded(store, topic)
    assert await read(store, topic) == [], "not for ever"


async def test_what_a_pointer_has_just_published_stays_in_a_topic_that_is_ahead(
    kit: Kit, store: Store
) -> None:
    topic = await store.topics.create(NAME, None, max_bytes=BOUND)
    kit.clock.jump(YEARS)
    await stand(kit, store, 300)
    await publish(store.topics, topic, large(3))
    kit.clock.jump(-YEARS)
    await stand(kit, store, 700)
    await publish_under(store, topic, 7, large(1), large(2))
    await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    await crowded(store, topic)
    seen = numbers([*(await committed(store, topic)).payloads])
    assert [each for each in seen if each < 3] == [1, 2]
