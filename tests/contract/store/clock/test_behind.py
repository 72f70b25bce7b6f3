"""A clock that was behind: messages behind a head that is ahead of it."""

import pytest

from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, payloads_of, publish
from tests.kits.store.stepping import DAY, stand, swept

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


@pytest.mark.parametrize("is_start", [True, False], ids=["start", "running"])
async def test_messages_from_before_and_from_while_it_was_behind_stay_when_it_is_right(
    kit: Kit, is_start: bool
) -> None:
    store = await kit.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "old")
    await store.keep_clock()
    if is_start:
        await kit.close()
        kit.clock.jump(-8 * DAY)
        store = await kit.open()
    else:
        kit.clock.jump(-8 * DAY)
        await stand(kit, store, 61)
    await publish(store.topics, topic, "boot")
    await publish(store.topics, topic, "own", ttl=3600)
    kit.clock.jump(8 * DAY)
    await stand(kit, store, 61)
    await publish(store.topics, topic, "after")
    await stand(kit, store, 600)
    await swept(store)
    assert await payloads_of(store.topics, topic) == ["old", "boot", "own", "after"]
