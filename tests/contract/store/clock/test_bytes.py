"""Bounds in bytes of topics, and stamps that are or were ahead."""

import pytest

from tests.kits.store.bounded import BOUND, FIT, fill, numbers, settle
from tests.kits.store.kits import Kit
from tests.kits.store.messages import named, payloads_of
from tests.kits.store.stepping import YEARS, stand

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


async def test_after_a_repair_what_was_ahead_leaves_before_what_is_newer(kit: Kit) -> None:
    store = await kit.open(topics_max_bytes=BOUND)
    topics = store.topics
    kit.clock.jump(YEARS)
    await stand(kit, store, 700)
    old = await topics.create(named("old"), None)
    await fill(topics, old, 6)
    await settle(topics)
    kit.clock.jump(-YEARS)
    await stand(kit, store, 700)
    await store.new_epoch()
    kit.clock.ms += 60_000
    new = await topics.create(named("new"), None)
    await fill(topics, new, FIT - 4, first=100)
    await settle(topics)
    assert numbers(await payloads_of(topics, new)) == [*range(100, 100 + FIT - 4)]
