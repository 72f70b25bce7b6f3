"""A clock that steps, in the tests of every store."""

from collections.abc import Iterable

from oplogd.store import Store
from oplogd.store.topics import Topic
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, publish

DAY = 86_400
YEARS = 10 * 365 * DAY
HOUR = 3600


async def stand(kit: Kit, store: Store, seconds: float) -> None:
    """Let time pass. Look at the clocks before and after, as a running agent does."""
    await store.keep_clock()
    kit.clock.ms += int(1000 * seconds)
    await store.keep_clock()


async def stepped(
    clock: VirtualClock, stores: Iterable[Store], step: int, seconds: int = 700
) -> None:
    """Let a clock step and stand. Agents look before, in the middle, and a second later."""
    clock.jump(step)
    for moved in (0, 1_000 * seconds, 1_000):
        clock.ms += moved
        for store in stores:
            await store.keep_clock()


async def poisoned(kit: Kit, store: Store, seconds: int = YEARS) -> Topic:
    """Return a topic with a message of a clock that was wrong for so long that it was followed."""
    topic = await store.topics.create(NAME, 5)
    kit.clock.jump(seconds)
    await stand(kit, store, 700)
    await publish(store.topics, topic, "wrong")
    kit.clock.jump(-seconds)
    await stand(kit, store, 700)
    return topic


async def swept(store: Store) -> int:
    """Sweep twice: some entries leave only the second time. Return their number."""
    return await store.topics.sweep() + await store.topics.sweep()
