"""The lease, by a clock that the test turns, and late writes of an old holder."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from oplogd.clock import Clock
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.states.fold import fold, raise_checkpoint
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore, drop
from tests.kits.mongo.operations import folded, live_states, op, states_of, whole_log
from tests.kits.mongo.wire import Wire

SECONDS = 5.0


MakeLease = Callable[..., FoldLease]


@pytest.fixture
def lease(link: Link, clock: VirtualClock) -> MakeLease:
    """Makes leases on one document, by default with the lease time SECONDS."""

    def make(seconds: float = SECONDS, meta: Any = None) -> FoldLease:
        return FoldLease(link.meta if meta is None else meta, seconds, clock=clock.monotonic)

    return make


@pytest.fixture
async def link(plain_url: str) -> AsyncIterator[Link]:
    made = Link(plain_url)
    await made.greet()
    yield made
    await made.close()
    await drop(plain_url)


async def test_only_one_of_two_agents_that_find_the_lease_free_takes_it(
    wire: Wire, lease: MakeLease
) -> None:
    link = Link(wire.url())
    await link.greet()
    try:
        slow, quick = lease(meta=link.meta), lease()
        held = wire.hold(lambda command: "findAndModify" in command)
        taking = asyncio.create_task(slow.hold())
        await asyncio.to_thread(held.wait)
        assert await quick.hold()
        await asyncio.to_thread(held.release)
        assert not await taking
        assert quick.held
        assert not slow.held
    finally:
        await link.close()


async def test_a_silent_holder_is_replaced_after_the_leases_time_and_not_before(
    lease: MakeLease, clock: VirtualClock
) -> None:
    holder, observer = lease(), lease()
    assert await holder.hold()
    assert not await observer.hold(), "seen for the first time"
    clock.seconds += SECONDS - 0.001
    assert not await observer.hold(), "not yet unchanged for the whole time"
    clock.seconds += 0.001
    assert not holder.held, "it knows before anybody else takes over"
    assert await observer.hold()
    assert not await holder.hold()


async def test_a_holder_that_renews_is_never_replaced(
    lease: MakeLease, clock: VirtualClock
) -> None:
    holder, observer = lease(), lease()
    for _ in range(20):
        assert await holder.hold()
        assert not await observer.hold()
        clock.seconds += SECONDS * 0.6


async def test_what_counts_is_how_long_the_observer_saw_a_revision_not_how_old_it_is(
    lease: MakeLease, clock: VirtualClock
) -> None:
    assert await lease().hold()
    clock.seconds += 100 * SECONDS
    observer = lease()
    assert not await observer.hold()
    clock.seconds += SECONDS
    assert await observer.hold()


async def test_of_several_that_see_it_run_out_one_takes_over(
    lease: MakeLease, clock: VirtualClock
) -> None:
    observers = [lease() for _ in range(8)]
    assert await lease().hold()
    for observer in observers:
        assert not await observer.hold()
    clock.seconds += SECONDS
    assert sorted(await asyncio.gather(*(observer.hold() for observer in observers))) == [
        False
    ] * 7 + [True]


async def test_a_released_lease_is_free_at_once(lease: MakeLease, clock: VirtualClock) -> None:
    holder, observer = lease(), lease()
    assert await holder.hold()
    assert not await observer.hold()
    await holder.release()
    assert await observer.hold()
    await holder.release()
    assert observer.held
    assert not await holder.hold(), "what it released is another's now"


async def test_the_longer_of_two_lease_times_counts(lease: MakeLease, clock: VirtualClock) -> None:
    holder, hasty = lease(60.0), lease()
    assert await holder.hold()
    assert not await hasty.hold()
    clock.seconds += 59.9
    assert not await hasty.hold(), "the holder's own time stands in the document"
    clock.seconds += 0.1
    assert await hasty.hold()
    patient = lease(60.0)
    assert not await patient.hold()
    clock.seconds += 59.9
    assert not await patient.hold(), "its own time is longer than the holder's"
    clock.seconds += 0.1
    assert await patient.hold()


class SlowMeta:
    """A collection whose answers to a look-up take ``seconds`` of the test's clock."""

    def __init__(self, meta: Any, clock: VirtualClock) -> None:
        self._meta, self._clock = meta, clock
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meta, name)

    async def find_one(self, chosen: Any) -> Any:
        found = await self._meta.find_one(chosen)
        self._clock.seconds += self.seconds
        return found


async def test_the_time_that_an_answer_takes_does_not_count_against_the_holder(
    link: Link, lease: MakeLease, clock: VirtualClock
) -> None:
    slow = SlowMeta(link.meta, clock)
    holder, observer = lease(), lease(meta=slow)
    assert await holder.hold()
    slow.seconds = 2 * SECONDS
    assert not await observer.hold(), "seen for the first time"
    slow.seconds = 0.0
    clock.seconds += SECONDS - 0.001
    assert not await observer.hold()
    clock.seconds += 0.001
    assert await observer.hold()


async def test_a_lease_document_of_an_older_version_or_a_damaged_one_can_be_taken(
    link: Link, lease: MakeLease, clock: VirtualClock
) -> None:
    for found in (
        {"holder": "other", "revision": 7},
        {"holder": "other"},
        {"holder": "other", "revision": 1, "seconds": "x"},
    ):
        await link.meta.replace_one({"_id": "oplog_ops:lease"}, found, upsert=True)
        observer = lease()
        assert not await observer.hold()
        clock.seconds += SECONDS
        assert await observer.hold()


async def test_late_writes_of_an_old_holder_change_nothing(
    plain_url: str, make_store: MakeStore
) -> None:
    store = make_store(plain_url, "plain")
    await store.open()
    await store.append([op("a"), op("b", "delete"), op("c")])
    await store.checkpoint()
    batch = await store.log.documents(0, 100)
    first = (await store.log.row()).first
    await store.append([op("a", "delete"), op("b"), op("d")])
    mark = await store.checkpoint()

    async def states() -> list[object]:
        return list(await states_of(store, mark.offset))

    before = await states()
    late = Link(plain_url)
    await late.greet()

    async def it_still_believes() -> bool:
        return True

    assert await fold(late, batch, it_still_believes)
    assert not await raise_checkpoint(late, batch, first, 0)
    await late.close()
    assert await states() == before
    assert await store.checkpoint() == mark
    assert await live_states(store) == folded(await whole_log(store))


async def test_a_store_is_as_patient_as_the_holders_lease_is_long(
    plain_url: str, make_store: MakeStore
) -> None:
    holder, hasty = (
        make_store(plain_url, "plain", lease=60),
        make_store(plain_url, "plain", lease=0.5),
    )
    await holder.open()
    assert hasty.lease.stall_seconds == 15
    await hasty.open()
    assert hasty.lease.stall_seconds == 180


async def test_an_agent_takes_over_from_one_that_fell_silent(
    plain_url: str, make_store: MakeStore
) -> None:
    own = VirtualClock()  # by it no time passes while the machine is busy
    silent, other = (
        make_store(plain_url, "plain", lease=0.5, clock=Clock(monotonic=own.monotonic))
        for _ in range(2)
    )
    await silent.open()
    await silent.append([op("a")])
    await silent.checkpoint()
    await other.open()
    assert not other.lease.held
    await silent.projection.stop()
    own.seconds += 0.5
    await other.append([op("b")])
    assert (await other.checkpoint()).offset == 2
    assert other.lease.held
    assert not await silent.lease.hold()
    assert set(await live_states(other)) == {"video/a", "video/b"}
