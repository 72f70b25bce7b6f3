"""Bounds in bytes: what undecided and just decided transactions and pointers need stays."""

import pytest

from oplogd.errors import TopicFullError, TransactionConflictError
from oplogd.model.pointer import Decision, PointerRules
from oplogd.store import Store
from oplogd.store.topics import DECIDED_MS, Topic
from tests.kits.store.bounded import (
    BOUND,
    FIT,
    fill,
    large,
    numbers,
    reason_of_refusal,
    settle,
)
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, named, payloads_of, publish
from tests.kits.store.pointing import (
    committed,
    publish_stored,
    publish_under,
    store_under,
)
from tests.kits.store.transacting import (
    begin,
    payloads_committed,
    payloads_uncommitted,
    record,
    records,
    write,
)


@pytest.fixture
async def store(topic_kit: Kit) -> Store:
    return await topic_kit.open()


@pytest.fixture
async def topic(store: Store) -> Topic:
    return await store.topics.create(NAME, None, max_bytes=BOUND)


# --- Transactions ---


async def test_records_of_an_open_transaction_stay_while_plain_messages_leave(
    store: Store, topic: Topic
) -> None:
    transaction = await begin(store)
    await write(store, transaction, *records(topic, large(1), large(2)))
    await fill(store.topics, topic, 2 * FIT, first=10)
    await settle(store.topics)
    assert large(1) not in await payloads_uncommitted(store, topic), "the front has passed it"
    await store.transactions.commit(transaction.id, 2)
    read = numbers([*await payloads_committed(store, topic)])
    assert read[-2:] == [1, 2]
    assert len(read) <= FIT


async def test_records_leave_with_their_commit_a_minute_after_it(
    topic_kit: Kit, store: Store, topic: Topic
) -> None:
    transaction = await begin(store)
    await write(store, transaction, *records(topic, large(1), large(2)))
    await store.transactions.commit(transaction.id, 2)
    topic_kit.clock.ms += DECIDED_MS
    await fill(store.topics, topic, 2 * FIT, first=10)
    await settle(store.topics)
    left = numbers([*await payloads_committed(store, topic)])
    assert left == [*range(2 * FIT + 10 - len(left), 2 * FIT + 10)]
    assert len(left) >= FIT - 1, "the records make room, too"


async def test_a_commit_that_is_just_decided_stops_the_front(
    topic_kit: Kit, store: Store, topic: Topic
) -> None:
    transaction = await begin(store)
    await write(store, transaction, *records(topic, large(1)))
    await store.transactions.commit(transaction.id, 1)
    topic_kit.clock.ms += DECIDED_MS - 1
    await fill(store.topics, topic, FIT - 1, first=10)
    await settle(store.topics)
    reason = await reason_of_refusal(store.topics, topic)
    assert f"max_bytes of {BOUND:,} bytes" in reason
    assert f"transaction {transaction.id} was decided less than 60 s ago" in reason
    assert len(await payloads_committed(store, topic)) == FIT
    topic_kit.clock.ms += 1
    await settle(store.topics)
    await publish(store.topics, topic, "more")
    assert large(1) not in await payloads_committed(store, topic)


async def test_records_that_fill_the_bound_refuse_publishes_until_the_abort(
    store: Store, topic: Topic
) -> None:
    transaction = await begin(store)
    for lsn in range(FIT + 1):
        await write(store, transaction, record(lsn, topic, large(lsn)))
    await settle(store.topics)
    assert "transactions that are not over" in await reason_of_refusal(store.topics, topic)
    with pytest.raises(TopicFullError, match="max_bytes"):
        await write(store, transaction, record(FIT + 1, topic, "more"))
    await store.transactions.abort(transaction.id)
    await settle(store.topics)
    await publish(store.topics, topic, "more")
    assert await payloads_committed(store, topic) == ["more"]


async def test_a_full_topic_takes_a_commit(store: Store, topic: Topic) -> None:
    transaction = await begin(store)
    for lsn in range(FIT + 1):
        await write(store, transaction, record(lsn, topic, large(lsn)))
    await settle(store.topics)
    await reason_of_refusal(store.topics, topic)
    await store.transactions.commit(transaction.id, FIT + 1)
    assert numbers([*await payloads_committed(store, topic)]) == [*range(FIT + 1)]


async def test_a_large_commit_at_the_head_leaves_a_minute_after_it(
    topic_kit: Kit, store: Store, topic: Topic
) -> None:
    transaction = await begin(store)
    for lsn in range(FIT + 1):
        await write(store, transaction, record(lsn, topic, large(lsn)))
    await store.transactions.commit(transaction.id, FIT + 1)
    topic_kit.clock.ms += DECIDED_MS - 1
    await settle(store.topics)
    assert "was decided less than 60 s ago" in await reason_of_refusal(store.topics, topic)
    assert len(await payloads_committed(store, topic)) == FIT + 1
    topic_kit.clock.ms += 1
    await settle(store.topics)
    await publish(store.topics, topic, "more")
    assert await payloads_committed(store, topic) == ["more"]


async def test_the_newest_message_stays_beside_records_that_fill_the_bound(
    store: Store, topic: Topic
) -> None:
    transaction = await begin(store)
    for lsn in range(FIT):
        await write(store, transaction, record(lsn, topic, large(lsn)))
    await fill(store.topics, topic, 1, first=100)
    await settle(store.topics)
    assert numbers(await payloads_of(store.topics, topic)) == [100]
    assert "transactions that are not over" in await reason_of_refusal(store.topics, topic)


# --- Pointers ---


async def test_the_front_stops_before_an_open_pointer(
    topic_kit: Kit, store: Store, topic: Topic
) -> None:
    await fill(store.topics, topic, 3)
    await publish_under(store, topic, 7, large(4) + "over")
    await fill(store.topics, topic, FIT - 1, first=5)
    await settle(store.topics)
    assert numbers(await payloads_of(store.topics, topic))[0] == 4
    reason = await reason_of_refusal(store.topics, topic)
    assert "pointer 7 is open" in reason
    with pytest.raises(TopicFullError, match="pointer 7 is open"):
        await publish_under(store, topic, 8, "more")
    with pytest.raises(TopicFullError, match="pointer 7 is open"):
        await store_under(store, topic, 8, "more")
    await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    await settle(store.topics)
    assert numbers([*(await committed(store, topic)).payloads])[0] == 4
    assert "pointer 7 was decided less than 60 s ago" in await reason_of_refusal(
        store.topics, topic
    )
    topic_kit.clock.ms += DECIDED_MS
    await settle(store.topics)
    await publish(store.topics, topic, "more")


async def test_an_aborted_pointer_holds_nothing(topic_kit: Kit, store: Store, topic: Topic) -> None:
    await publish_under(store, topic, 7, large(1) + "over")
    await fill(store.topics, topic, FIT - 1, first=2)
    await settle(store.topics)
    await reason_of_refusal(store.topics, topic)
    await store.pointers.decide([topic.log], 7, Decision.ABORTED)
    await settle(store.topics)
    await publish(store.topics, topic, "more")


async def test_a_rollback_makes_room(store: Store, topic: Topic) -> None:
    await publish_under(store, topic, 7, *map(large, range(FIT + 1)))
    await settle(store.topics)
    await reason_of_refusal(store.topics, topic)
    await store.pointers.rollback(topic.log, 7, None)
    await settle(store.topics)
    await publish(store.topics, topic, "more")


async def test_stored_messages_count_and_stay_until_they_are_published_and_old(
    topic_kit: Kit, store: Store, topic: Topic
) -> None:
    await store_under(store, topic, 7, *map(large, range(FIT + 1)))
    await settle(store.topics)
    assert "not over" in await reason_of_refusal(store.topics, topic)
    await publish_stored(store, topic, 7)
    await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    assert numbers([*(await committed(store, topic)).payloads]) == [*range(FIT + 1)]
    topic_kit.clock.ms += DECIDED_MS
    await settle(store.topics)
    await publish(store.topics, topic, "more")
    await settle(store.topics)
    assert [*(await committed(store, topic)).payloads] == ["more"]
    assert (await store.topics.stats()).bytes < BOUND


async def test_a_full_topic_that_takes_no_pointers_says_what_no_retry_will_change(
    store: Store, topic: Topic
) -> None:
    await publish_under(store, topic, 7, *map(large, range(FIT + 1)))
    await settle(store.topics)
    await store.topics.change(NAME, None, PointerRules(is_on=False), max_bytes=BOUND)
    for call in (publish_under, store_under):
        with pytest.raises(TransactionConflictError):
            await call(store, topic, 8, "more")


# --- All topics together ---


async def test_all_topics_are_full_when_nothing_may_leave(topic_kit: Kit) -> None:
    store = await topic_kit.open(topics_max_bytes=BOUND)
    topic = await store.topics.create(NAME, None)
    other = await store.topics.create(NAME._replace(topic="other"), None)
    await publish_under(store, topic, 7, *map(large, range(FIT + 1)))
    await settle(store.topics)
    for each in (topic, other):
        reason = await reason_of_refusal(store.topics, each)
        assert f"{BOUND:,} bytes (--topics-max-bytes)" in reason
    with pytest.raises(TopicFullError, match="--topics-max-bytes"):
        await publish_under(store, other, 8, "more")
    await store.pointers.decide([topic.log], 7, Decision.ABORTED)
    topic_kit.clock.ms += DECIDED_MS
    await settle(store.topics)
    await publish(store.topics, other, "more")
    assert len(await entries_of(store.topics.log(topic))) < FIT


async def test_the_oldest_of_the_newest_entries_leave_if_they_alone_exceed_the_bound(
    topic_kit: Kit,
) -> None:
    store = await topic_kit.open(topics_max_bytes=BOUND)
    topics = [await store.topics.create(named(f"t{k}"), None) for k in range(FIT + 4)]
    for number, topic in enumerate(topics):
        await fill(store.topics, topic, 1, first=number)
        topic_kit.clock.ms += 1
    await settle(store.topics)
    left = [await payloads_of(store.topics, topic) for topic in topics]
    assert [len(each) for each in left] == 4 * [0] + FIT * [1]
    await publish(store.topics, topics[0], "more")
    await settle(store.topics)
    assert await payloads_of(store.topics, topics[0]) == ["more"]
