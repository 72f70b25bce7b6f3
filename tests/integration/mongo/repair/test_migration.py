"""docs/operate/migration.md: from the first server and back, with the commands of the page."""

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from oplogd.clock import now_ms
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import EventId
from oplogd.store.mongo import MongoStore
from oplogd.stream.phases.start import Since, resolve
from tests.kits.documents import pages
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import live_states, op, whole_log

Document = dict[str, Any]
PAGE = pages.MIGRATION.read_text(encoding="utf-8")
COMMAND = re.compile(r"db\.(\w+)\.(\w+)\((.*)\);")


async def first_server_writes(database: AsyncDatabase[Document], event: str, id_: str) -> ObjectId:
    """Append and upsert as the first server does: the state is replaced whole, without ``n``."""
    data = {"ts": datetime.now(UTC), "p": None, "t": "video", "id": id_}
    at = ObjectId()
    await database.oplog_ops.insert_one({"_id": at, "event": event, "data": data})
    state = {
        "event": "delete" if event == "delete" else "insert",
        "ts": datetime.now(UTC),
        "data": data,
    }
    await database.oplog_states.replace_one({"_id": f"video/{id_}"}, state, upsert=True)
    return at


async def type_in(database: AsyncDatabase[Document], snippet: str) -> list[object]:
    """Run the commands of the page as mongosh would."""
    results: list[object] = []
    for collection, method, argument in COMMAND.findall(snippet):
        match method:
            case "countDocuments":
                assert argument == '{ event: "insert" }'
                results.append(await database[collection].count_documents({"event": "insert"}))
            case "renameCollection":
                await database[collection].rename(argument.strip('"'))
            case "drop":
                await database[collection].drop()
            case _:
                raise AssertionError(f"nobody knows {method}")
    return results


async def first_servers_answer(database: AsyncDatabase[Document], id_: str) -> set[tuple[str, str]]:
    """Return the states that the first server sends to a consumer with this id.

    The id is not in its log, so it sends the states since the id's second.
    """
    assert await database.oplog_ops.count_documents({"_id": ObjectId(id_)}) == 0
    since = datetime.fromtimestamp(int(id_[:8], 16), UTC)
    found = database.oplog_states.find({"ts": {"$gte": since}}).sort("ts")
    return {(state["event"], state["data"]["id"]) async for state in found}


async def test_there_and_back_and_there_again(plain_url: str, make_store: MakeStore) -> None:
    # On the server in memory: FerretDB breaks the connection at the second take-over.
    count, count_again, drop_log, back = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
    async with AsyncMongoClient[Document](plain_url) as client:
        database = client.get_default_database()
        await database.create_collection("oplog_ops")
        for id_ in ("a", "b", "c"):
            await first_server_writes(database, "insert", id_)
        last = await first_server_writes(database, "delete", "c")
        before = await type_in(database, count)

        store = make_store(plain_url, "plain")
        await store.open()
        await ready(store)
        assert await type_in(database, count_again) == before == [2]
        assert await start_of(store, str(last)) == Since(int(str(last)[:8], 16) * 1000)
        await store.append([op("b", "delete"), op("d")])
        assert set(await live_states(store)) == {"video/a", "video/d"}
        ours = [entry.offset for entry in await whole_log(store)]
        position = str((await database.oplog_ops.find_one({"n": 1}) or {})["_id"])
        await store.close()

        await type_in(database, back)
        assert {("delete", "b"), ("insert", "d")} <= await first_servers_answer(database, position)
        assert await database.oplog_ops.count_documents({}) == 4
        await first_server_writes(database, "insert", "e")
        await first_server_writes(database, "delete", "a")

        again = make_store(plain_url, "plain")
        await again.open()
        await ready(again)
        assert set(await live_states(again)) == {"video/d", "video/e"}
        await again.append([op("f")])
        assert [entry.offset for entry in await whole_log(again)] == [ours[-1] + 1]
        assert set(await live_states(again)) == {"video/d", "video/e", "video/f"}
        await type_in(database, drop_log)
        assert "oplog_ops_of_first_server" not in await database.list_collection_names()


async def ready(store: MongoStore) -> None:
    """Wait until the store works. The server may cut a connection; agents try again, too."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.checkpoint()
                return
            except StoreUnavailableError:
                await asyncio.sleep(0.02)


async def start_of(store: MongoStore, id_: str) -> object:
    position = EventId(int(id_[:8], 16), int(id_[8:12], 16), int(id_[12:], 16))
    return resolve(position, await store.locate(position.offset), now_ms())
