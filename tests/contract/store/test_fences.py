"""Fences of messages and operations in every store."""

import asyncio
from collections import Counter

import pytest

from oplogd.model.event_id import Mark
from oplogd.model.lease import Fence
from oplogd.store import Store
from oplogd.store.topics import Placed, Refused
from tests.kits.models.operations import fold, operation
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import LARGE, Kit, contents, expected, known, log_of, states_of, wanted
from tests.kits.store.leasing import (
    ORDERS,
    TTL_MS,
    fenced,
    fenced_messages,
    ids_of,
    is_accepted,
    lead,
)
from tests.kits.store.messages import NAME, entries_of, mark, named, payloads_of


async def test_the_present_term_is_accepted_and_every_other_one_refused(
    txn_kit: Kit, lease_store: Store
) -> None:
    other = await txn_kit.open()
    topic = await lease_store.topics.create(NAME, None)
    assert not await is_accepted(lease_store, topic, Fence(ORDERS, 1)), "nobody ever held it"
    first = await lead(lease_store, "a")
    for store in (lease_store, other):
        assert await is_accepted(store, topic, first)
        assert not await is_accepted(store, topic, Fence(ORDERS, 2))
        assert not await is_accepted(store, topic, Fence("others", 1))
    second = await lead(other, "a", refresh=True)
    for store in (lease_store, other):
        assert not await is_accepted(store, topic, first)
        assert await is_accepted(store, topic, second)


async def test_a_term_holds_past_the_expiry_until_the_lease_is_acquired(
    txn_kit: Kit, lease_store: Store
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    first = await lead(lease_store, "a", ttl_ms=100)
    txn_kit.clock.ms += 2 * TTL_MS
    assert await is_accepted(lease_store, topic, first)
    second = await lead(lease_store, "b")
    assert not await is_accepted(lease_store, topic, first)
    assert await is_accepted(lease_store, topic, second)


async def test_the_term_of_a_released_lease_is_over(txn_kit: Kit, lease_store: Store) -> None:
    topic = await lease_store.topics.create(NAME, None)
    first = await lead(lease_store, "a")
    await lease_store.leases.release(ORDERS, "a", first.term)
    assert not await is_accepted(lease_store, topic, first)
    second = await lead(lease_store, "a")
    assert not await is_accepted(lease_store, topic, first)
    assert await is_accepted(lease_store, topic, second)


async def test_a_refused_batch_of_messages_does_not_affect_the_others_of_the_call(
    lease_store: Store,
) -> None:
    topics = lease_store.topics
    one, two = [await topics.create(named(name), None) for name in ("one", "two")]
    gone = await topics.create(named("gone"), None)
    await topics.delete(gone.name)
    stale = await lead(lease_store, "a")
    current = await lead(lease_store, "a", refresh=True)
    other = await lead(lease_store, "a", name="others")
    outcomes = await topics.append(
        [
            fenced_messages(one, stale, "s1"),
            fenced_messages(one, None, "a", "b"),
            fenced_messages(two, current, "A"),
            fenced_messages(one, current, "c"),
            fenced_messages(gone, current, "g"),
            fenced_messages(one, stale, "s2", "s3"),
            fenced_messages(two, stale, "s4"),
            fenced_messages(one, other, "d"),
            fenced_messages(two, None, "B"),
            fenced_messages(gone, None, "g"),
        ]
    )
    a, b, c, d = [mark(entry) for entry in await entries_of(topics.log(one))]
    upper = [mark(entry) for entry in await entries_of(topics.log(two))]
    assert outcomes == [
        Refused.STALE,
        Placed(a, b),
        Placed(upper[0], upper[0]),
        Placed(c, c),
        Refused.DELETED,
        Refused.STALE,
        Refused.STALE,
        Placed(d, d),
        Placed(upper[1], upper[1]),
        Refused.DELETED,
    ]
    assert await payloads_of(topics, one) == ["a", "b", "c", "d"]
    assert await payloads_of(topics, two) == ["A", "B"]


async def test_refused_operations_do_not_affect_the_other_batches_of_the_call(
    lease_store: Store,
) -> None:
    stale = await lead(lease_store, "a")
    current = await lead(lease_store, "a", refresh=True)
    other = await lead(lease_store, "a", name="others")
    results = await lease_store.append_fenced(
        [
            fenced(current, "1", "2"),
            fenced(stale, "s"),
            fenced(other, "3"),
            fenced(Fence("unknown", 1), "u"),
            fenced(stale, "t", "u"),
            fenced(current, "4"),
        ]
    )
    assert results == [True, False, True, False, False, True]
    assert await ids_of(lease_store) == ["1", "2", "3", "4"]
    await lease_store.append([operation(id_="5")])
    assert [entry.offset for entry in await log_of(lease_store)] == [1, 2, 3, 4, 5]
    assert await lease_store.append_fenced([fenced(stale, "v")]) == [False]
    assert (await lease_store.checkpoint()).offset == 5


@pytest.mark.parametrize("txn_kits", LARGE, indirect=True)
async def test_fenced_operations_reach_the_states_and_the_follower_in_order(
    txn_kit: Kit, lease_store: Store
) -> None:
    fence = await lead(lease_store, "a")
    made = [operation(id_="x"), operation("update", id_="x"), operation("delete", id_="y")]
    following = asyncio.create_task(lease_store.follow(0, 10, DEADLINE))
    batches = [fenced(fence, "1")._replace(operations=part) for part in (made[:2], made[2:])]
    assert await lease_store.append_fenced(batches) == [True, True]
    followed = await following
    while len(followed) < 3:
        followed += await lease_store.follow(followed[-1].offset, 10, DEADLINE)
    assert contents(followed) == wanted(made)
    entries = await log_of(lease_store)
    assert entries == followed
    assert (await lease_store.checkpoint()) == Mark(3, entries[-1].ms)
    assert known(await states_of(lease_store)) == expected(fold(entries))


async def test_a_leader_that_goes_on_sending_lands_nothing_behind_the_next_leader(
    txn_kit: Kit, lease_store: Store
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    stores = [lease_store, await txn_kit.open()]
    in_topic, in_log = Counter[int](), Counter[int]()

    async def send(store: Store, fence: Fence) -> bool:
        outcomes = await store.topics.append([fenced_messages(topic, fence, fence.term)])
        (is_appended,) = await store.append_fenced([fenced(fence, str(fence.term))])
        in_topic[fence.term] += outcomes != [Refused.STALE]
        in_log[fence.term] += is_appended
        return is_appended

    async def send_until_refused(store: Store, fence: Fence) -> None:
        while await send(store, fence):
            await asyncio.sleep(0)

    fence = await lead(lease_store, "0")
    for round_ in range(1, 11):
        old, new = stores[(round_ - 1) % 2], stores[round_ % 2]
        assert await send(old, fence)
        txn_kit.clock.ms += TTL_MS
        late = asyncio.create_task(send_until_refused(old, fence))
        fence = await lead(new, str(round_))
        assert await send(new, fence)
        await late
    for counts, found in (
        (in_topic, await payloads_of(lease_store.topics, topic)),
        (in_log, await ids_of(lease_store)),
    ):
        assert found == [str(term) for term in range(1, 12) for _ in range(counts[term])]
