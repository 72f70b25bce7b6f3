"""The life of a lease in every store."""

import asyncio
from collections import Counter

import pytest

from oplogd.errors import LeaseConflictError, LeaseNotFoundError
from oplogd.store import Store
from tests.kits.store.kits import LARGE, Kit
from tests.kits.store.leasing import ORDERS, TTL_MS, held, lead, request
from tests.kits.store.messages import NAME, publish


async def test_the_first_poll_acquires_the_lease_and_others_change_nothing(
    txn_kit: Kit, lease_store: Store
) -> None:
    other = await txn_kit.open()
    assert await lease_store.leases.poll(request("a")) == held("a", 1)
    txn_kit.clock.ms += 4_000
    found = held("a", 1, TTL_MS - 4_000)
    for refresh in (False, True):
        polled = await other.leases.poll(
            request("b", ttl_ms=60_000, refresh=refresh, note="of the other one")
        )
        assert polled == found
    for store in (lease_store, other):
        assert await store.leases.find(ORDERS) == found


async def test_polls_of_the_holder_extend_the_lease_and_keep_the_term(
    txn_kit: Kit, lease_store: Store
) -> None:
    for ttl_ms in (TTL_MS, 1_000, 100, TTL_MS):
        assert await lease_store.leases.poll(request("a", ttl_ms=ttl_ms)) == held("a", 1, ttl_ms)
        txn_kit.clock.ms += ttl_ms - 1
    assert await lease_store.leases.poll(request("b")) == held("a", 1, 1)


async def test_polls_in_quick_succession_tell_the_time_that_is_really_left(
    txn_kit: Kit, lease_store: Store
) -> None:
    """A store may leave the lease as it is until a twentieth of its time to live has passed."""
    await lead(lease_store, "a")
    ends = txn_kit.clock.ms + TTL_MS
    for _ in range(40):
        txn_kit.clock.ms += 100
        lease = await lease_store.leases.poll(request("a"))
        assert lease == await lease_store.leases.find(ORDERS)
        assert TTL_MS - TTL_MS // 20 < lease.left_ms <= TTL_MS
        assert txn_kit.clock.ms + lease.left_ms >= ends
        ends = txn_kit.clock.ms + lease.left_ms


async def test_each_refresh_takes_the_next_term_and_extends_the_lease(
    txn_kit: Kit, lease_store: Store
) -> None:
    assert await lease_store.leases.poll(request("a", refresh=True)) == held("a", 1)
    for term in (2, 3, 4):
        txn_kit.clock.ms += 1
        assert await lease_store.leases.poll(request("a", refresh=True)) == held("a", term)
    assert await lease_store.leases.poll(request("a")) == held("a", 4)


@pytest.mark.parametrize("holder", ["a", "b"])
@pytest.mark.parametrize("refresh", [False, True])
async def test_an_expired_lease_goes_to_the_next_poll_with_the_next_term(
    txn_kit: Kit, lease_store: Store, holder: str, refresh: bool
) -> None:
    await lead(lease_store, "a")
    txn_kit.clock.ms += TTL_MS - 1
    assert await lease_store.leases.poll(request("b")) == held("a", 1, 1)
    txn_kit.clock.ms += 1
    assert await lease_store.leases.find(ORDERS) == held("a", 1, 0)
    txn_kit.clock.ms += 1_000_000
    assert await lease_store.leases.find(ORDERS) == held("a", 1, 0)
    assert await lease_store.leases.poll(request(holder, refresh=refresh)) == held(holder, 2)


async def test_a_lease_can_be_acquired_in_the_millisecond_of_its_end(
    txn_kit: Kit, lease_store: Store
) -> None:
    await lead(lease_store, "a")
    txn_kit.clock.ms += TTL_MS
    assert await lease_store.leases.poll(request("b")) == held("b", 2)
    assert await lease_store.leases.poll(request("a")) == held("b", 2)


@pytest.mark.parametrize("holder", ["a", "b"])
async def test_a_released_lease_goes_to_the_next_poll_with_the_next_term(
    txn_kit: Kit, lease_store: Store, holder: str
) -> None:
    await lead(lease_store, "a")
    await lead(lease_store, "a", refresh=True)
    released = held(None, 2, 0)
    for _ in range(3):
        assert await lease_store.leases.release(ORDERS, "a", 2) == released
        assert await lease_store.leases.find(ORDERS) == released
        txn_kit.clock.ms += 1
    assert await lease_store.leases.poll(request(holder)) == held(holder, 3)


async def test_an_expired_lease_can_be_released(txn_kit: Kit, lease_store: Store) -> None:
    await lead(lease_store, "a")
    txn_kit.clock.ms += 2 * TTL_MS
    assert await lease_store.leases.release(ORDERS, "a", 1) == held(None, 1, 0)


async def test_a_release_with_another_holder_or_term_is_a_conflict_and_changes_nothing(
    txn_kit: Kit, lease_store: Store
) -> None:
    await lead(lease_store, "a")
    await lead(lease_store, "a", refresh=True)
    for holder, term in (("b", 2), ("a", 1), ("a", 3)):
        with pytest.raises(LeaseConflictError, match=r"orders is held by a with term 2"):
            await lease_store.leases.release(ORDERS, holder, term)
        assert await lease_store.leases.find(ORDERS) == held("a", 2)
    await lease_store.leases.release(ORDERS, "a", 2)
    with pytest.raises(LeaseConflictError, match="orders has no holder, its last term is 2"):
        await lease_store.leases.release(ORDERS, "a", 1)
    await lead(lease_store, "b")
    with pytest.raises(LeaseConflictError, match=r"orders is held by b with term 3"):
        await lease_store.leases.release(ORDERS, "a", 2)


async def test_a_lease_that_nobody_ever_held_is_not_found(lease_store: Store) -> None:
    await lead(lease_store, "a", name="others")
    with pytest.raises(LeaseNotFoundError, match="lease orders"):
        await lease_store.leases.find(ORDERS)
    with pytest.raises(LeaseNotFoundError, match="lease orders"):
        await lease_store.leases.release(ORDERS, "a", 1)


async def test_a_note_stays_until_its_holder_replaces_it_or_the_lease_is_acquired_again(
    txn_kit: Kit, lease_store: Store
) -> None:
    async def note() -> str:
        return (await lease_store.leases.find(ORDERS)).note

    polled = await lease_store.leases.poll(request("a", note='{"ä": "\U0001f600"}'))
    assert polled.note == await note() == '{"ä": "\U0001f600"}'
    await lead(lease_store, "a", refresh=True)
    txn_kit.clock.ms += TTL_MS // 2
    await lead(lease_store, "a")
    assert await note() == '{"ä": "\U0001f600"}'
    assert (await lease_store.leases.poll(request("a", note="second"))).note == "second"
    assert (await lease_store.leases.poll(request("a", note=""))).note == await note() == ""
    await lease_store.leases.poll(request("a", note="last"))
    assert (await lease_store.leases.poll(request("b", note="no holder"))).note == "last"
    txn_kit.clock.ms += TTL_MS
    assert await note() == "last"
    assert (await lease_store.leases.poll(request("b"))).note == ""
    await lease_store.leases.poll(request("b", note="of b"))
    assert (await lease_store.leases.release(ORDERS, "b", 3)).note == await note() == "of b"
    assert (await lease_store.leases.poll(request("c", note="of c"))).note == await note() == "of c"


async def test_leases_of_different_names_know_nothing_of_each_other(lease_store: Store) -> None:
    names = ["orders", "Orders", "orders.2", "o"]
    for term, name in enumerate(names, 1):
        for _ in range(term):
            await lead(lease_store, f"holder of {name}", name=name, refresh=True)
    await lease_store.leases.release("o", "holder of o", 4)
    found = [await lease_store.leases.find(name) for name in names]
    assert [(each.holder, each.term) for each in found] == [
        ("holder of orders", 1),
        ("holder of Orders", 2),
        ("holder of orders.2", 3),
        (None, 4),
    ]


async def test_of_many_candidates_at_a_time_one_leads_and_all_know_it(
    txn_kit: Kit, lease_store: Store
) -> None:
    stores = [lease_store, await txn_kit.open(), await txn_kit.open()]
    won = Counter[str | None]()
    for term in range(1, 11):
        leases = await asyncio.gather(
            *(store.leases.poll(request(f"h{n}")) for n in range(5) for store in stores)
        )
        assert {lease.term for lease in leases} == {term}
        (holder,) = {lease.holder for lease in leases}
        assert holder is not None
        won[holder] += 1
        if term % 2:
            await lease_store.leases.release(ORDERS, holder, term)
        else:
            txn_kit.clock.ms += TTL_MS
    assert won.total() == 10


async def test_refreshes_at_a_time_take_terms_of_their_own(
    txn_kit: Kit, lease_store: Store
) -> None:
    other = await txn_kit.open()
    await lead(lease_store, "a")
    fences = await asyncio.gather(
        *(lead(store, "a", refresh=True) for store in (lease_store, other) for _ in range(10))
    )
    assert sorted(fence.term for fence in fences) == list(range(2, 22))


@pytest.mark.parametrize("txn_kits", LARGE, indirect=True)
async def test_terms_persist_when_everything_else_is_new(txn_kit: Kit, lease_store: Store) -> None:
    topic = await lease_store.topics.create(NAME, None)
    await publish(lease_store.topics, topic, "a")
    await lead(lease_store, "a")
    await lead(lease_store, "a", refresh=True)
    await lease_store.topics.delete(NAME)
    await lease_store.topics.sweep()
    await lease_store.transactions.keep()
    await lease_store.new_epoch()
    await lease_store.close()
    reopened = await txn_kit.open()
    assert await reopened.leases.find(ORDERS) == held("a", 2)
    txn_kit.clock.ms += 366 * 86_400_000
    await reopened.topics.sweep()
    await reopened.transactions.keep()
    assert await reopened.leases.poll(request("b")) == held("b", 3)
