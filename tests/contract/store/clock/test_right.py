"""A clock that is put right: nothing that was written before leaves early."""

import pytest

from oplogd.store import Store
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, payloads_of, publish
from tests.kits.store.stepping import DAY, HOUR, poisoned, stand, swept

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


@pytest.mark.parametrize("waited", [3, 60, 3 * HOUR])
async def test_the_first_time_of_a_network_ends_nothing_early(
    kit: Kit, store: Store, waited: int
) -> None:
    """A machine without a clock of its own runs for a while before it learns the time."""
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "a")
    await publish(store.topics, topic, "own", ttl=DAY)
    await stand(kit, store, waited)
    kit.clock.jump(8 * DAY)
    await publish(store.topics, topic, "b")
    await publish(store.topics, topic, "own", ttl=DAY)
    await stand(kit, store, 61)
    await stand(kit, store, 601)
    await swept(store)
    assert await payloads_of(store.topics, topic) == ["a", "own", "b", "own"]
    await stand(kit, store, DAY - 661)
    assert await payloads_of(store.topics, topic) == ["a", None, "b", None]
    await stand(kit, store, 6 * DAY - waited)
    assert await payloads_of(store.topics, topic) == ["b", None]


async def test_a_boot_without_a_clock_dates_by_the_time_that_comes_later(kit: Kit) -> None:
    """The machine was off for eight days, and begins with a time long past."""
    store = await kit.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "old")
    await stand(kit, store, 60)
    await kit.close()
    kit.clock.jump(-30 * DAY)
    store = await kit.open()
    await publish(store.topics, topic, "a")
    await publish(store.topics, topic, "own", ttl=DAY)
    await stand(kit, store, 2 * HOUR)
    kit.clock.jump(38 * DAY)
    await stand(kit, store, 61)
    await publish(store.topics, topic, "b")
    await stand(kit, store, 601)
    await swept(store)
    assert (await payloads_of(store.topics, topic))[-3:] == ["a", "own", "b"]
    await stand(kit, store, DAY)
    assert (await payloads_of(store.topics, topic))[-3:] == ["a", None, "b"]
    await stand(kit, store, 7 * DAY)
    await swept(store)
    assert await payloads_of(store.topics, topic) == []


async def test_behind_a_head_that_is_ahead_a_clock_that_is_put_right_ends_nothing_early(
    kit: Kit, store: Store
) -> None:
    topic = await poisoned(kit, store)
    topic = await store.topics.change(topic.name, HOUR)
    kit.clock.jump(-2 * HOUR)
    await stand(kit, store, 661)
    await publish(store.topics, topic, "a")
    await publish(store.topics, topic, "own", ttl=1800)
    kit.clock.jump(2 * HOUR)
    await stand(kit, store, 61)
    await stand(kit, store, 601)
    await swept(store)
    assert (await payloads_of(store.topics, topic))[-2:] == ["a", "own"]
    await stand(kit, store, 1800)
    assert (await payloads_of(store.topics, topic))[-2:] == ["a", None]


async def test_a_wrong_time_that_is_followed_and_taken_back_ends_nothing_early(
    kit: Kit, store: Store
) -> None:
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "a")
    await publish(store.topics, topic, "own", ttl=DAY)
    for step in (8 * DAY, -8 * DAY):
        kit.clock.jump(step)
        await stand(kit, store, 61)
        await stand(kit, store, 601)
        await swept(store)
        assert await payloads_of(store.topics, topic) == ["a", "own"]
    await stand(kit, store, DAY)
    assert await payloads_of(store.topics, topic) == ["a", None]
    await stand(kit, store, 6 * DAY)
    assert await payloads_of(store.topics, topic) == []


async def test_what_was_written_before_a_stop_stays_if_a_later_clock_is_wrong(kit: Kit) -> None:
    """The start is believed after ten minutes: from then on, steps are no time for it either."""
    store = await kit.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "a")
    await stand(kit, store, 60)
    store = await _stopped(kit, store, 660)
    await stand(kit, store, 61)
    await stand(kit, store, 601)
    await stand(kit, store, 3 * DAY)
    for step in (8 * DAY, -8 * DAY):
        kit.clock.jump(step)
        await stand(kit, store, 61)
        await stand(kit, store, 601)
        await swept(store)
        assert await payloads_of(store.topics, topic) == ["a"]
    await stand(kit, store, 4 * DAY)
    assert await payloads_of(store.topics, topic) == []


async def test_a_step_that_waits_is_no_time_if_a_long_stop_follows(kit: Kit) -> None:
    store = await kit.open()
    topic = await store.topics.create(NAME, DAY)
    await publish(store.topics, topic, "a")
    await stand(kit, store, 60)
    kit.clock.jump(8 * DAY)
    await stand(kit, store, 30)
    store = await _stopped(kit, store, 3600)
    await stand(kit, store, 61)
    await stand(kit, store, 601)
    await swept(store)
    assert await payloads_of(store.topics, topic) == ["a"]
    await stand(kit, store, DAY - 4000)
    assert await payloads_of(store.topics, topic) == []


async def _stopped(kit: Kit, store: Store, seconds: int) -> Store:
    """Return the store after a stop. The clock goes on."""
    await store.keep_clock()
    await kit.close()
    kit.clock.ms += 1000 * seconds
    return await kit.open()
