"""Own times to live of messages behind a head that is ahead."""

import pytest

from oplogd.store import Store
from tests.kits.store.kits import Kit
from tests.kits.store.messages import payloads_of, publish
from tests.kits.store.pointing import TEPHRA, entry_at, publish_stored, store_under
from tests.kits.store.stepping import DAY, poisoned

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


async def test_stored_messages_of_a_pointer_expire_by_the_time_of_publishing(
    kit: Kit, store: Store
) -> None:
    topic = await poisoned(kit, store)
    await store.topics.change(topic.name, 7 * DAY)
    await store_under(store, topic, TEPHRA, "a", ttl=10)
    mark = await publish_stored(store, topic, TEPHRA)
    log = store.topics.log(topic)
    entry = await entry_at(store, topic, mark)
    assert [each.data for each in await log.expand(entry, 0, 10)] != [""]
    kit.clock.ms += 10_001
    assert [each.data for each in await log.expand(entry, 0, 10)] == [""]


async def test_a_new_epoch_lets_messages_with_an_own_time_to_live_begin_again(
    kit: Kit, store: Store
) -> None:
    topic = await poisoned(kit, store)
    await publish(store.topics, topic, "own", ttl=4)
    await store.new_epoch()
    assert (await payloads_of(store.topics, topic))[-1] == "own"
    kit.clock.ms += 4001
    assert (await payloads_of(store.topics, topic))[-1] is None
