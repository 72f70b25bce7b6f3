"""A database as the first server left it."""

from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo.asynchronous.database import AsyncDatabase

Document = dict[str, Any]
THEN = datetime(2014, 11, 6, 11, 4, 39, 41_000, UTC)


def first_servers(id_: str, event: str = "insert") -> tuple[Document, Document]:
    """Return an entry and a state as the first server wrote them."""
    data = {"ts": THEN, "p": ["x3kd2"], "t": "video", "id": id_}
    at = ObjectId()
    entry = {"_id": at, "event": event, "data": data}
    return entry, {"_id": f"video/{id_}", "event": event, "ts": at.generation_time, "data": data}


async def fill(database: AsyncDatabase[Document], capped: bool) -> ObjectId:
    """Fill a database as the first server. Return the id of its last entry."""
    written = [first_servers("a"), first_servers("b"), first_servers("c", "delete")]
    if capped:
        await database.create_collection("oplog_ops", capped=True, size=1 << 20)
    await database.oplog_ops.insert_many([entry for entry, _ in written])
    await database.oplog_states.insert_many([state for _, state in written])
    last: ObjectId = written[-1][0]["_id"]
    return last
