"""Identity and secret of a store in MongoDB: late, damaged, gone, made by many at once."""

import asyncio
from pathlib import Path

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from oplogd.store.mongo import Timing
from oplogd.store.mongo.link.layout import IDENTITY, META, Document
from oplogd.store.mongo.setup.take_over import read_own
from tests.integration.mongo.test_failures import AWAY
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clock.waiting import attempts
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.proxies.mongo import MongoProxy

SOON = Timing(keep_seconds=0.02)


def test_an_agent_names_its_store_as_soon_as_it_has_reached_mongodb(
    plain_url: str, tmp_path: Path
) -> None:
    with MongoProxy(plain_url) as proxy:
        proxy.disconnect()
        options = dict(each.split("=") for each in AWAY[1:].split("&"))
        with Agent(
            tmp_path, "--mongo-url", proxy.url(**options), "--log-collection", "plain"
        ) as agent:
            first = agent.request("GET", "/status")
            assert first.json["store"] == {"kind": "mongodb"}
            assert "oplog-store" not in first.headers
            proxy.mend()
            for _ in attempts(DEADLINE):
                named = agent.request("GET", "/live").headers.get("oplog-store")
                if named is not None:
                    break
            assert agent.status()["store"]["identity"] == named
            proxy.disconnect()
            agent.wait_status(status="DEGRADED")
            assert agent.status()["store"] == {"kind": "mongodb", "identity": named}


@pytest.mark.parametrize("has_identity", [False, True])
async def test_many_that_make_identity_and_secret_at_once_get_the_same(
    plain_url: str, has_identity: bool
) -> None:
    """An agent of the version before has made the identity alone."""
    async with AsyncMongoClient[Document](plain_url) as client:
        for round_ in range(10):
            meta = client.get_default_database()[f"{META}{round_}"]
            if has_identity:
                await meta.insert_one({"_id": IDENTITY, "identity": "a" * 32})
            found = await asyncio.gather(*(read_own(meta) for _ in range(8)))
            assert len(set(found)) == 1
            ((identity, secret), *_) = found
            assert identity is not None
            assert (identity == "a" * 32) == has_identity
            assert secret is not None
            row = await meta.find_one({"_id": IDENTITY})
            assert row == {"_id": IDENTITY, "identity": identity, "secret": secret}


async def test_a_damaged_secret_is_not_used(plain_url: str) -> None:
    async with AsyncMongoClient[Document](plain_url) as client:
        meta = client.get_default_database()[META]
        identity, _ = await read_own(meta)
        for damaged in (None, b"", b"x" * 31, "x" * 32, 1):
            await meta.update_one({"_id": IDENTITY}, {"$set": {"secret": damaged}})
            assert await read_own(meta) == (identity, None)


async def test_an_identity_that_is_damaged_or_gone_is_noticed_while_the_store_is_open(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    store = make_store(plain_url, "plain", timing=SOON)
    await store.open()
    identity = store.identity
    meta = database[META]

    async def until(is_reached: object) -> None:
        async with asyncio.timeout(DEADLINE):
            while store.identity != is_reached:
                await asyncio.sleep(0.01)

    meta.update_one({"_id": IDENTITY}, {"$set": {"identity": "a\r\nb"}})
    await until(None)
    meta.update_one({"_id": IDENTITY}, {"$set": {"identity": identity}})
    await until(identity)
    meta.delete_one({"_id": IDENTITY})
    async with asyncio.timeout(DEADLINE):
        while store.identity == identity:
            await asyncio.sleep(0.01)
    row = meta.find_one({"_id": IDENTITY})
    assert row is not None
    await until(row["identity"])


async def test_an_older_agent_that_makes_the_identity_gets_a_secret_of_this_one(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    store = make_store(plain_url, "plain", timing=SOON)
    await store.open()
    identity, secret = store.identity, store.secret
    assert secret is not None
    database[META].update_one({"_id": IDENTITY}, {"$unset": {"secret": ""}})
    async with asyncio.timeout(DEADLINE):
        while store.secret == secret:
            await asyncio.sleep(0.01)
    row = database[META].find_one({"_id": IDENTITY})
    assert row == {"_id": IDENTITY, "identity": identity, "secret": store.secret}
