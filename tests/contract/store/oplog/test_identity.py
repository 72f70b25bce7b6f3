"""The identity of every store."""

import asyncio
import re

from oplogd.store import Store
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import Kit, Kits


async def identity_of(store: Store) -> str:
    """Return the identity when it is known: MongoDB may be set up in the background."""
    async with asyncio.timeout(DEADLINE):
        while (found := store.identity) is None:
            await asyncio.sleep(0.01)
    return found


async def test_the_identity_is_made_once_and_outlives_openings_caps_and_epochs(
    kit: Kit, store: Store
) -> None:
    identity = await identity_of(store)
    assert re.fullmatch("[0-9a-f]{32}", identity)
    await store.append(numbered(2))
    await store.new_epoch()
    assert store.identity == identity
    await store.close()
    for cap in (None, 2_000_000):
        again = await kit.open(max_bytes=cap)
        assert await identity_of(again) == identity
        await again.close()


async def test_handles_that_open_a_new_store_at_once_agree_on_its_identity(kit: Kit) -> None:
    stores = await asyncio.gather(*(kit.open() for _ in range(4)))
    assert len({await identity_of(each) for each in stores}) == 1


async def test_two_stores_have_different_identities(kits: Kits) -> None:
    async with kits() as one, kits() as other:
        assert await identity_of(await one.open()) != await identity_of(await other.open())
