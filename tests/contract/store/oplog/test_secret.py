"""The secret of every store."""

import asyncio

from oplogd.store import Store
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import Kit, Kits


async def secret_of(store: Store) -> bytes:
    """Return the secret when it is known: MongoDB may be set up in the background."""
    async with asyncio.timeout(DEADLINE):
        while (found := store.secret) is None:
            await asyncio.sleep(0.01)
    return found


async def test_the_secret_is_made_once_and_outlives_openings_caps_and_epochs(
    kit: Kit, store: Store
) -> None:
    secret = await secret_of(store)
    assert len(secret) == 32
    assert len(set(secret)) > 8
    await store.append(numbered(2))
    await store.new_epoch()
    assert store.secret == secret
    await store.close()
    for cap in (None, 2_000_000):
        again = await kit.open(max_bytes=cap)
        assert await secret_of(again) == secret
        await again.close()


async def test_handles_that_open_a_new_store_at_once_agree_on_its_secret(kit: Kit) -> None:
    stores = await asyncio.gather(*(kit.open() for _ in range(4)))
    assert len({await secret_of(each) for each in stores}) == 1


async def test_two_stores_have_different_secrets(kits: Kits) -> None:
    async with kits() as one, kits() as other:
        assert await secret_of(await one.open()) != await secret_of(await other.open())


async def test_the_secret_is_in_no_repr(store: Store) -> None:
    secret = await secret_of(store)
    for shown in (repr(store), str(store), repr(await store.stats())):
        assert repr(secret) not in shown
        assert secret.hex() not in shown
