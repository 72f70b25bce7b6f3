"""Fences: no entry of an old term goes in behind one of a later term, whoever sleeps when.

mongo-java-server only: the updates of FerretDB are not atomic, so it proves nothing about leases.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pymongo import monitoring

from oplogd.errors import StoreUnavailableError
from oplogd.model.lease import Fence
from oplogd.store import Correction, CorrectionResult
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import Placed, Refused
from tests.integration.mongo.leases.fenced import (
    LEASE,
    Schedule,
    Target,
    insert_at_most,
    new_term,
    poll,
    request,
    schedule,
)
from tests.integration.mongo.topics.topics import NAME, batch, payloads_of
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op
from tests.kits.mongo.wire import Moment, Wire

ENDED = "term 1 of the lease orders ended while a request was being stored"

both = pytest.mark.parametrize("log", ["topic", "oplog"])


def takes_over(made: Schedule, *ids: str) -> Callable[[], Awaitable[None]]:
    """Return a function by which the new leader takes a term and appends."""

    async def act() -> None:
        term = await new_term(made.new)
        for each in ids:
            assert await made.target.append(made.new, term, each)

    return act


@both
async def test_a_leader_that_slept_between_judgement_and_insert_is_refused_behind_the_next_one(
    log: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    made = await schedule(log, wire, plain_url, make_store)
    held = await made.held_between_judgement_and_insert("old", then=takes_over(made, "new"))
    assert held is False
    assert not await made.target.append(made.old, made.term, "again")
    assert await made.target.ids(made.new) == ["first", "new"]


@both
async def test_a_leader_that_slept_may_still_append_before_the_next_one_does(
    log: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    made = await schedule(log, wire, plain_url, make_store)
    assert await made.held_between_judgement_and_insert("old", then=takes_over(made)) is True
    assert await made.target.append(made.new, 2, "new")
    assert await made.target.ids(made.new) == ["first", "old", "new"]


@both
async def test_an_insert_whose_answer_was_lost_and_whose_term_is_over_is_not_told_as_refused(
    log: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """It may still land: nobody has taken its place. Then it does so before the next leader."""
    made = await schedule(log, wire, plain_url, make_store)
    told = await made.held_between_judgement_and_insert("old", then=takes_over(made), is_cut=True)
    assert isinstance(told, str)
    assert (ENDED in told) == (log == "topic")  # which repeats the insert, and judges again
    assert await made.target.append(made.new, 2, "new")
    assert await made.target.ids(made.new) == ["first", "old", "new"]


@both
async def test_a_late_copy_of_an_insert_stays_out_behind_the_next_leader(
    log: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    made = await schedule(log, wire, plain_url, make_store)
    told = await made.held_between_judgement_and_insert(
        "old", "older", then=takes_over(made, "new"), is_cut=True
    )
    assert isinstance(told, str)
    assert await made.target.append(made.new, 2, "newer")
    assert await made.target.ids(made.new) == ["first", "new", "newer"]


@both
async def test_an_insert_that_landed_before_its_term_ended_counts_although_its_answer_was_lost(
    log: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    made = await schedule(log, wire, plain_url, make_store)
    told = await made.held_between_judgement_and_insert(
        "old", then=takes_over(made, "new"), moment="after", is_cut=True
    )
    # A topic's entries are looked up. The oplog's caller is told that it is not confirmed.
    assert told is True if log == "topic" else isinstance(told, str)
    assert not await made.target.append(made.old, made.term, "again")
    assert await made.target.ids(made.new) == ["first", "old", "new"]


@both
async def test_a_batch_that_is_stored_in_part_when_its_term_ends_is_not_told_as_refused(
    log: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    made = await schedule(log, wire, plain_url, make_store)
    insert_at_most(made.old, 2)
    first = wire.hold(made.target.is_insert)
    appending = asyncio.create_task(made.target.append(made.old, made.term, "a", "b", "c"))
    await asyncio.to_thread(first.wait)
    second = wire.hold(made.target.is_insert)
    await asyncio.to_thread(first.release)
    await asyncio.to_thread(second.wait)
    await takes_over(made, "new")()
    await asyncio.to_thread(second.release)
    with pytest.raises(StoreUnavailableError, match=ENDED):
        await appending
    assert not await made.target.append(made.old, made.term, "again")
    assert await made.target.append(made.old, 2, "newer")
    assert await made.target.ids(made.new) == ["first", "a", "b", "new", "newer"]


@both
async def test_a_fence_holds_past_the_expiry_and_does_not_after_a_release(
    log: str, wire: Wire, plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    made = await schedule(log, wire, plain_url, make_store)
    clock.move(3600)
    assert (await made.new.leases.find(LEASE)).left_ms == 0
    assert await made.target.append(made.old, 1, "expired")
    await made.new.leases.release(LEASE, "leader", 1)
    assert not await made.target.append(made.old, 1, "released")
    assert not await made.target.append(made.old, 2, "too early")
    assert (await poll(made.new, "other")).term == 2
    assert await made.target.append(made.new, 2, "other")
    assert await made.target.ids(made.new) == ["first", "expired", "other"]


@both
async def test_two_leaders_that_take_terms_from_each_other_reverse_nothing(
    log: str, plain_url: str, make_store: MakeStore
) -> None:
    stores = [make_store(plain_url, "plain", lease=60) for _ in range(2)]
    for store in stores:
        await store.open()
    target = Target(await stores[0].topics.create(NAME, None) if log == "topic" else None)
    sent: list[str] = []
    refused = 0

    async def lead(store: MongoStore) -> None:
        nonlocal refused
        for _ in range(60):
            term = await new_term(store)
            for number in range(3):
                ids = [f"{term}-{number}-a", f"{term}-{number}-b"]
                if not await target.append(store, term, *ids):
                    refused += 1
                    break
                sent.extend(ids)

    await asyncio.gather(*map(lead, stores))
    found = await target.ids(stores[0])
    assert sorted(found) == sorted(sent)
    assert refused
    assert [int(each.split("-")[0]) for each in found] == sorted(
        int(each.split("-")[0]) for each in sent
    )
    for term in range(1, 121):
        own = [each for each in found if each.startswith(f"{term}-")]
        assert own == sorted(own)


async def test_a_stale_batch_does_not_affect_the_others_of_its_call(
    plain_url: str, make_store: MakeStore
) -> None:
    store = make_store(plain_url, "plain", lease=60)
    await store.open()
    topic = await store.topics.create(NAME, None)
    await poll(store, "leader")
    await poll(store, "other's leader", "other")
    held, stale = Fence(LEASE, 1), Fence(LEASE, 2)
    batches = [
        batch(topic, "a", "b"),
        batch(topic, "c")._replace(fence=stale),
        batch(topic, "d")._replace(fence=held),
        batch(topic, "e")._replace(fence=Fence("other", 1)),
        batch(topic, "f")._replace(fence=Fence("nobody's", 1)),
    ]
    outcomes = await store.topics.append(batches)
    assert [each if isinstance(each, Refused) else type(each) for each in outcomes] == [
        Placed,
        Refused.STALE,
        Placed,
        Placed,
        Refused.STALE,
    ]
    assert await payloads_of(store.topics, topic) == ["a", "b", "d", "e"]
    assert await store.append_fenced(
        [request(1, "a", "b"), request(2, "c"), request(1, "d"), request(3, "e")]
    ) == [True, False, True, False]
    assert await Target(None).ids(store) == ["a", "b", "d"]


async def test_fenced_operations_beside_all_other_writers_are_stored_once_and_in_order(
    plain_url: str, make_store: MakeStore
) -> None:
    stores = [make_store(plain_url, "plain", lease=60) for _ in range(2)]
    for store in stores:
        await store.open()
    await poll(stores[0], "leader")

    async def fenced(who: int) -> None:
        for n in range(40):
            parts = [request(1, f"f{who}-{n:02}-{part}", f"f{who}-{n:02}-{part}'") for part in "ab"]
            assert await stores[who].append_fenced(parts) == [True, True]

    async def plain(who: int) -> None:
        for n in range(40):
            await stores[who].append([op(f"p{who}-{n:02}-a"), op(f"p{who}-{n:02}-b")])

    async def corrected() -> None:
        for n in range(10):
            correction = Correction(op(f"c-{n:02}"), 0)
            assert await stores[1].correct([correction]) == [CorrectionResult.APPLIED]

    await asyncio.gather(*(each(who) for each in (fenced, plain) for who in (0, 1)), corrected())
    found = await Target(None).ids(stores[0])
    assert len(found) == len(set(found)) == 2 * 40 * 4 + 2 * 40 * 2 + 10
    for writer in ("f0", "f1", "p0", "p1", "c"):
        own = [each for each in found if each.startswith(f"{writer}-")]
        assert own == sorted(own)


async def test_operations_of_a_call_that_failed_are_not_in_doubt_for_the_next_call(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    made = await schedule("oplog", wire, plain_url, make_store)
    moments: tuple[Moment, ...] = ("after", "before")
    for moment in moments:
        wire.cut(made.target.is_insert, moment)
        with pytest.raises(StoreUnavailableError):
            await made.old.append_fenced([request(1, f"cut {moment}")])
        wire.cut(None)
        assert await made.old.append_fenced([request(1, f"next {moment}")]) == [True]
    assert await made.target.ids(made.new) == ["first", "cut after", "next after", "next before"]


class Commands(monitoring.CommandListener):
    """The reads and writes of this task: command, collection and read concern.

    The store looks at its log from time to time, in a task of its own.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.seen: list[tuple[str, str, Document]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        is_read_or_write = event.command_name in ("find", "insert", "findAndModify")
        if is_read_or_write and asyncio.current_task() is self._task:
            collection = event.command[event.command_name]
            concern = event.command.get("readConcern", {})
            self.seen.append((event.command_name, collection, concern))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


@both
async def test_the_lease_is_read_with_majority_after_the_head_and_only_for_a_fence(
    log: str, plain_url: str, make_store: MakeStore
) -> None:
    other = make_store(plain_url, "plain", lease=60)
    await other.open()
    target = Target(await other.topics.create(NAME, None) if log == "topic" else None)
    term = await new_term(other)
    commands = Commands()

    async def append_plain(store: MongoStore) -> None:
        if target.topic is None:
            await store.append([op("plain")])
        else:
            await store.topics.append([batch(target.topic, "plain")])

    with Wire(plain_url, as_replica_set=True) as wire:
        # The stand-in has no retryable writes.
        url = wire.url(retryWrites="false")
        store = MongoStore(url, collection="plain", lease=60, event_listeners=[commands])
        await store.open()
        try:
            await append_plain(store)
            wire.cluster_seconds += 5
            commands.seen.clear()
            assert await target.append(store, term, "fenced")
            head, lease, insert = commands.seen
            collection = "oplog_entries" if log == "topic" else "oplog_ops"
            assert [head[:2], lease[:2], insert[:2]] == [
                ("find", collection),
                ("find", "oplog_leases"),
                ("insert", collection),
            ]
            assert head[2]["level"] == lease[2]["level"] == "majority"
            # The time of the answer about the head.
            assert lease[2]["afterClusterTime"].time == wire.cluster_seconds
            commands.seen.clear()
            await append_plain(store)
            assert [each[:2] for each in commands.seen] == [head[:2], insert[:2]]
        finally:
            await store.close()
