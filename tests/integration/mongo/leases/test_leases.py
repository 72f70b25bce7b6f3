"""Leases of clients: each change has one winner, and no term is given twice.

mongo-java-server only: the updates of FerretDB are not atomic, so it proves nothing about leases.
"""

import asyncio

import pytest
from pymongo import monitoring
from pymongo.database import Database

from oplogd.errors import LeaseConflictError, StoreUnavailableError
from oplogd.model.lease import MAX_TERM
from oplogd.store.leases import LeaseRequest
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.mongo.link.layout import Document
from tests.integration.mongo.leases.fenced import LEASE, TTL_MS, Target, new_term, poll
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Command, Wire


def changes(command: Command) -> bool:
    """Return whether a command changes a lease that exists."""
    return command.get("findAndModify") == "oplog_leases"


def creates(command: Command) -> bool:
    return command.get("insert") == "oplog_leases"


async def opened(make_store: MakeStore, *urls: str) -> list[MongoStore]:
    stores = [make_store(url, "plain", lease=60) for url in urls]
    for store in stores:
        await store.open()
    return stores


async def test_200_races_for_one_lease_have_one_winner_each(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    stores = await opened(make_store, plain_url, plain_url)
    wins = [0, 0]
    for number in range(1, 201):
        polls = await asyncio.gather(*(poll(store, str(who)) for who, store in enumerate(stores)))
        holders = {each.holder for each in polls}
        assert [each.term for each in polls] == [number, number]
        assert len(holders) == 1
        (winner,) = holders
        assert winner in ("0", "1")
        wins[int(winner)] += 1
        if number % 2:
            await stores[0].leases.release(LEASE, winner, number)
        else:
            clock.ms += TTL_MS
    assert sum(wins) == 200


async def test_races_for_a_lease_that_nobody_ever_held_have_one_winner(
    plain_url: str, make_store: MakeStore
) -> None:
    stores = await opened(make_store, plain_url, plain_url)
    for number in range(50):
        polls = [poll(store, str(who), f"lease-{number}") for who, store in enumerate(stores)]
        found = await asyncio.gather(*polls)
        assert [each.term for each in found] == [1, 1]
        assert len({each.holder for each in found}) == 1


async def test_refreshes_at_once_never_give_a_term_twice(
    plain_url: str, make_store: MakeStore
) -> None:
    stores = await opened(make_store, plain_url, plain_url)
    await poll(stores[0], "leader")

    async def refresh(store: MongoStore) -> list[int]:
        return [await new_term(store) for _ in range(100)]

    terms = await asyncio.gather(*map(refresh, stores))
    assert sorted([*terms[0], *terms[1]]) == list(range(2, 202))


async def test_a_release_that_races_with_the_next_term_does_not_end_that_one(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other, store = await opened(make_store, plain_url, wire.url())
    await poll(store, "leader")
    held = wire.hold(changes)
    releasing = asyncio.create_task(store.leases.release(LEASE, "leader", 1))
    await asyncio.to_thread(held.wait)
    assert await new_term(other) == 2
    await asyncio.to_thread(held.release)
    with pytest.raises(LeaseConflictError, match="held by leader with term 2"):
        await releasing
    assert (await other.leases.find(LEASE)).holder == "leader"


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
async def test_a_poll_whose_answer_was_lost_raises_the_term_once_and_its_repetition_tells_it(
    is_first: bool, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other, store = await opened(make_store, plain_url, wire.url())
    term = 0 if is_first else await new_term(other)
    wire.cut(creates if is_first else changes)
    with pytest.raises(StoreUnavailableError, match="the connection broke"):
        await new_term(store)
    assert wire.cuts == 1
    wire.cut(None)
    assert (await other.leases.find(LEASE)).term == term + 1
    repeated = await poll(store, "leader")
    assert (repeated.holder, repeated.term) == ("leader", term + 1)


async def test_a_lease_in_the_way_of_every_change_ends_the_poll(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """As while no majority has the row that the primary has: reads return an older one."""
    other = make_store(plain_url, "plain", lease=60)
    await other.open()
    await poll(other, "leader")
    store = make_store(wire.url(), "plain", lease=60, timing=Timing(majority_seconds=0.0))
    await store.open()
    held = wire.hold(changes)
    polling = asyncio.create_task(new_term(store))
    await asyncio.to_thread(held.wait)
    assert await new_term(other) == 2
    await asyncio.to_thread(held.release)
    with pytest.raises(StoreUnavailableError, match="the lease orders changes too often, or no"):
        await polling
    assert (await other.leases.find(LEASE)).term == 2


class Writes(monitoring.CommandListener):
    """``count``: of the writes to leases."""

    def __init__(self) -> None:
        self.count = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.count += changes(dict(event.command)) or creates(dict(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


async def test_a_poll_writes_only_if_it_changes_something_and_extends_20_times_per_ttl_at_most(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    writes = Writes()
    store = make_store(plain_url, "plain", lease=60, event_listeners=[writes])
    await store.open()
    lefts = []
    for _ in range(100):
        lefts.append((await poll(store, "leader")).left_ms)
        assert (await poll(store, "other")).holder == "leader"
        clock.ms += TTL_MS // 100
    assert writes.count == 20
    assert lefts == [TTL_MS - n % 5 * TTL_MS // 100 for n in range(100)]
    writes.count = 0
    noted = LeaseRequest(LEASE, "leader", TTL_MS, note="n")
    for request in (noted, noted, noted._replace(refresh=True), noted._replace(ttl_ms=TTL_MS - 1)):
        await store.leases.poll(request)
    assert writes.count == 3


async def test_terms_do_not_begin_again_after_leases_were_lost(
    plain_url: str,
    database: Database[Document],
    make_store: MakeStore,
    clock: VirtualClock,
) -> None:
    """Otherwise the fence of an old leader would hold again."""
    (store,) = await opened(make_store, plain_url)
    assert [await new_term(store) for _ in range(3)] == [1, 2, 3]
    assert (await poll(store, "a", "other")).term == 1
    database["oplog_leases"].delete_one({"_id": LEASE})
    assert await new_term(store) == START_MS
    clock.ms += 1_000
    database["oplog_leases"].drop()
    assert not await Target(None).append(store, START_MS, "old")
    assert [await new_term(store) for _ in range(2)] == [START_MS + 1_000, START_MS + 1_001]
    assert (await poll(store, "a", "new")).term == START_MS + 1_000
    assert await Target(None).append(store, START_MS + 1_001, "new")


async def test_a_lease_that_ends_too_late_by_a_clock_that_was_set_back_expires_all_the_same(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    (store,) = await opened(make_store, plain_url)
    await poll(store, "dead")
    clock.ms -= 86_400_000
    found = await poll(store, "other")
    assert (found.holder, found.term, found.left_ms) == ("dead", 1, TTL_MS)
    clock.ms += TTL_MS
    found = await poll(store, "other")
    assert (found.holder, found.term) == ("other", 2)


@pytest.mark.parametrize(
    "damage",
    [
        {"term": "7"},
        {"term": None},
        {"term": 0},
        {"term": MAX_TERM + 1},
        {"until": 1.5},
        {"holder": 5},
        {"note": None},
    ],
)
async def test_a_damaged_lease_is_named(
    damage: Document, plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    (store,) = await opened(make_store, plain_url)
    await poll(store, "leader")
    database["oplog_leases"].update_one(
        {"_id": LEASE}, {"$set": {f"lease.{name}": value for name, value in damage.items()}}
    )
    with pytest.raises(StoreUnavailableError, match="document orders of oplog_leases is damaged"):
        await poll(store, "leader")
    held = await Target(None).append(store, 1, "x")
    assert held == ("term" not in damage)
