"""``--new-epoch`` on MongoDB: only for a database that holds a log."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from bson import ObjectId
from pymongo import AsyncMongoClient

from tests.kits.mongo.agents import new_epoch
from tests.kits.mongo.fixtures import MakeStore, drop
from tests.kits.mongo.operations import op, whole_log


async def test_a_database_without_a_log_is_refused_and_left_empty(plain_url: str) -> None:
    ended = new_epoch(plain_url)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "--mongo-url" in ended.stderr
    assert urlsplit(plain_url).path.strip("/") in ended.stderr
    async with AsyncMongoClient[dict[str, Any]](plain_url) as client:
        assert await client.get_default_database().list_collection_names() == []


async def test_a_log_is_set_aside(plain_url: str, make_store: MakeStore) -> None:
    store = make_store(plain_url, "plain")
    await store.open()
    await store.append([op("a"), op("b")])
    await store.checkpoint()
    await store.close()
    ended = new_epoch(plain_url)
    assert ended.returncode == 0, ended.stderr
    assert "after offset 2; the old one is set aside" in ended.stdout
    ended = new_epoch(plain_url)
    assert ended.returncode == 0, ended.stderr
    assert "after offset 2; the old one was empty" in ended.stdout
    store = make_store(plain_url, "plain")
    await store.open()
    await store.append([op("c")])
    assert [entry.offset for entry in await whole_log(store)] == [3]


async def test_a_database_of_the_first_server_holds_a_log(plain_url: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](plain_url) as client:
        data = {"ts": datetime.now(UTC), "p": None, "t": "video", "id": "a"}
        await client.get_default_database().oplog_ops.insert_one(
            {"_id": ObjectId(), "event": "insert", "data": data}
        )
    try:
        ended = new_epoch(plain_url)
        assert ended.returncode == 0, ended.stderr
        assert "A new log begins" in ended.stdout
    finally:
        await drop(plain_url)
