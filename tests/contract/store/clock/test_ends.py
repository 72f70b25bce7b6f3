"""Time-outs of transactions and pointers while the clock is wrong for a while."""

import pytest

from oplogd.model.transaction import State
from oplogd.store import Store
from oplogd.store.sqlite.interface import transactions
from oplogd.store.sqlite.pointers import ends as pointer_ends
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME
from tests.kits.store.pointing import TEPHRA, publish_under, store_under
from tests.kits.store.stepping import DAY, HOUR, stand
from tests.kits.store.transacting import begin, group_log

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


async def opened(store: Store) -> int:
    """Begin a transaction and two pointers of 15 minutes. Return the transaction."""
    topic = await store.topics.create(NAME, None)
    begun = await begin(store, timeout_ms=900_000)
    await publish_under(store, topic, TEPHRA, "a", timeout_ms=900_000)
    await store_under(store, topic, 7, "b", timeout_ms=900_000)
    return begun.id


async def ended(store: Store) -> tuple[int, int]:
    """Let the keepers work. Return how many transactions and pointers they have ended."""
    return await store.transactions.keep(), await store.pointers.keep()


async def test_a_moment_an_hour_back_ends_nothing_early(kit: Kit, store: Store) -> None:
    await group_log(store)
    id_ = await opened(store)
    kit.clock.jump(-HOUR)
    await stand(kit, store, 61)
    assert await ended(store) == (0, 0)
    kit.clock.jump(HOUR)
    await store.keep_clock()
    assert await ended(store) == (0, 0)
    assert (await store.transactions.find(id_)).state is State.OPEN
    kit.clock.ms += 839_001
    assert await ended(store) == (1, 2)


async def test_a_start_with_the_clock_ahead_ends_nothing_early(kit: Kit) -> None:
    store = await kit.open()
    await group_log(store)
    id_ = await opened(store)
    await store.keep_clock()
    await kit.close()
    kit.clock.jump(8 * DAY)
    store = await kit.open()
    await stand(kit, store, 300)
    assert await ended(store) == (0, 0)
    assert (await store.transactions.find(id_)).state is State.OPEN
    kit.clock.jump(-8 * DAY)
    await stand(kit, store, 3)
    await store.transactions.commit(id_, 0)


@pytest.mark.parametrize("step", [8 * DAY, -HOUR])
async def test_a_step_that_stands_is_no_time_that_has_passed(
    kit: Kit, store: Store, step: int
) -> None:
    await group_log(store)
    id_ = await opened(store)
    kit.clock.jump(step)
    await stand(kit, store, 60)
    await stand(kit, store, 840)
    assert await ended(store) == (0, 0)
    assert (await store.transactions.find(id_)).state is State.OPEN
    kit.clock.ms += 1
    assert await ended(store) == (1, 2)
    assert (await store.transactions.find(id_)).state is State.ABORTED


async def test_after_a_restart_a_step_of_before_is_no_time_that_has_passed(kit: Kit) -> None:
    store = await kit.open()
    await group_log(store)
    await opened(store)
    kit.clock.jump(8 * DAY)
    await stand(kit, store, 61)
    await kit.close()
    kit.clock.ms += 30_000
    store = await kit.open()
    await stand(kit, store, 809)
    assert await ended(store) == (0, 0)
    kit.clock.ms += 1
    assert await ended(store) == (1, 2)


async def test_a_start_far_ahead_that_is_followed_ends_nothing_early(kit: Kit) -> None:
    store = await kit.open()
    await group_log(store)
    await opened(store)
    await store.keep_clock()
    await kit.close()
    kit.clock.jump(8 * DAY)
    store = await kit.open()
    await stand(kit, store, 60)
    await stand(kit, store, 840)
    assert await ended(store) == (0, 0)
    kit.clock.ms += 1
    assert await ended(store) == (1, 2)


@pytest.mark.parametrize("step", [8 * DAY, -HOUR])
async def test_long_and_renewed_time_outs_are_as_long_as_they_say(
    kit: Kit, store: Store, step: int
) -> None:
    topic = await store.topics.create(NAME, None)
    await publish_under(store, topic, TEPHRA, "a", timeout_ms=10 * DAY * 1000)
    await store_under(store, topic, 7, "b", timeout_ms=900_000)
    kit.clock.jump(step)
    await stand(kit, store, 61)
    await store_under(store, topic, 7, "c", timeout_ms=900_000)
    await stand(kit, store, 900)
    assert await store.pointers.keep() == 0
    kit.clock.ms += 1
    assert await store.pointers.keep() == 1
    # After a step back the times of its begin come again, and nothing ends early.
    kit.clock.ms += 1000 * (10 * DAY - 961 + max(0, -step)) - 1
    assert await store.pointers.keep() == 0
    kit.clock.ms += 1
    assert await store.pointers.keep() == 1


async def test_many_that_go_on_because_of_a_step_hide_none_that_is_over(
    kit: Kit, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointer_ends, "STEP_POINTERS", 2)
    monkeypatch.setattr(transactions, "STEP_ROWS", 2)
    await group_log(store)
    topic = await store.topics.create(NAME, None)
    for pointer in (7, 8):
        await publish_under(store, topic, pointer, "a", timeout_ms=900_000)
        await begin(store, timeout_ms=900_000)
    kit.clock.jump(8 * DAY)
    await stand(kit, store, 61)
    await publish_under(store, topic, TEPHRA, "a", timeout_ms=1_000)
    begun = await begin(store, timeout_ms=1_000)
    await stand(kit, store, 2)
    assert await ended(store) == (1, 1)
    assert (await store.transactions.find(begun.id)).state is State.ABORTED
    assert {each.pointer for each in await store.pointers.select(topic.log, 9)} == {7, 8}
    await stand(kit, store, 837)
    assert await ended(store) == (0, 0)
    kit.clock.ms += 1
    assert await ended(store) == (2, 2)
