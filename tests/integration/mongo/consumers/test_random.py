"""Named consumers under random requests of six clients at three agents, whose steps fail at random.

mongo-java-server only: the updates of FerretDB are not atomic, so it proves nothing here.
"""

import asyncio
import contextlib
import random

import pytest

from oplogd.errors import ConsumerNotFoundError
from oplogd.model.consumer import ShardKey
from oplogd.store.mongo import MongoStore, Timing
from tests.integration.mongo.committing import KilledError, opened
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.store.consuming import (
    FIRST,
    NAME,
    SECOND,
    SETTINGS,
    acknowledge,
    given,
    reading,
)

REQUESTS = 80
KEYS = [ShardKey(NAME, 0), ShardKey(NAME, 1)]
TWO_SHARDS = SETTINGS._replace(shards=2)


@pytest.mark.parametrize("seed", range(3))
async def test_no_term_is_given_twice_whatever_fails_when(
    seed: int, plain_url: str, make_store: MakeStore
) -> None:
    chance = random.Random(seed)
    taken: list[tuple[ShardKey, int]] = []

    async def fail_or_wait(_: str) -> None:
        if chance.random() < 0.15:
            raise KilledError
        if chance.random() < 0.4:
            await asyncio.sleep(chance.random() * 0.03)

    async def request(store: MongoStore) -> None:
        consumers, key = store.consumers, chance.choice(KEYS)
        match chance.randrange(8):
            case 0 | 1:
                await consumers.create(NAME, TWO_SHARDS, FIRST)
            case 2:
                await consumers.delete(NAME)
            case 3:
                await consumers.seek(NAME, [0, 1], FIRST)
            case 4:
                term = taken[-1][1] if taken else 1
                await acknowledge(store, *(given(SECOND, term, key=each) for each in KEYS))
            case _:
                taken.append((key, await reading(store, key=key)))

    async def client(store: MongoStore) -> None:
        for _ in range(REQUESTS):
            with contextlib.suppress(KilledError, ConsumerNotFoundError):
                await request(store)

    timing = Timing(at_step=fail_or_wait)
    stores = [await opened(make_store, plain_url, timing=timing) for _ in range(3)]
    await asyncio.gather(*map(client, stores * 2))
    assert len(set(taken)) == len(taken) > 0
    for store in stores:
        store.link.timing = Timing()
    await stores[0].consumers.create(NAME, TWO_SHARDS, FIRST)
    for key in KEYS:
        assert await reading(stores[1], key=key) > max(term for each, term in taken if each == key)
