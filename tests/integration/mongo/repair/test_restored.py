"""Databases that are restored under running agents, and documents of any size."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent, CommandSucceededEvent

from oplogd.model.event_id import Mark
from oplogd.store import StateCursor
from oplogd.store.mongo.link.layout import entry_id
from tests.kits.mongo.agents import agent
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import document, live_states, op, whole_log

Document = dict[str, Any]


@contextlib.contextmanager
def direct(url: str) -> Iterator[Any]:
    with MongoClient[Document](url) as client:
        yield client.get_default_database()


def test_a_database_restored_under_an_agent_gives_live_consumers_no_silent_gap(
    tmp_path: Path, plain_url: str
) -> None:
    """The restored log goes past the offset of the consumers, so offsets alone show nothing."""
    with agent(tmp_path, plain_url, "plain") as running, running.follow() as stream:
        for number in range(6):
            assert running.post({"event": "insert", "type": "video", "id": f"a{number}"}) == 204
        ids = [event.id for event in stream.take(6)]
        assert len(running.replicate()) == 6  # nothing is being folded
        last_ms = int(ids[-1][:8], 16) * 1000 + int(ids[-1][8:12], 16)
        entries: list[Document] = []
        states: list[Document] = []
        for offset in range(4, 16):
            ms = last_ms + offset
            data = {
                "ts": datetime.fromtimestamp(1_400_000_000, UTC),
                "p": [],
                "t": "video",
                "id": f"other{offset}",
            }
            entries.append(
                {"_id": entry_id(Mark(offset, ms)), "event": "insert", "data": data, "n": offset}
            )
            when = datetime.fromtimestamp(ms / 1000, UTC)
            states.append(
                {
                    "_id": f"video/other{offset}",
                    "event": "insert",
                    "ts": when,
                    "data": data,
                    "n": offset,
                }
            )
        with direct(plain_url) as database:
            database.oplog_states.delete_many({"n": {"$gt": 3}})
            database.oplog_states.insert_many(states)
            database.oplog_meta.update_one(
                {"_id": "oplog_ops"}, {"$set": {"n": 15, "ts": last_ms + 15}}
            )
            database.oplog_ops.delete_many({"n": {"$gt": 3}})
            database.oplog_ops.insert_many(entries)
        events = stream.until("live")
        assert (events[0].event, events[0].id) == ("reset", "1")
        objects = [event.operation["id"] for event in events[1:-1]]
        assert objects == ["a0", "a1", "a2", *(f"other{offset}" for offset in range(4, 16))]
        with running.follow(ids[-1]) as again:
            assert again.take(1)[0].event == "reset"


class ReceivedDocuments(CommandListener):
    """Counts the documents of answers, and the characters of their parents."""

    def __init__(self) -> None:
        self.documents = self.characters = 0

    def started(self, event: CommandStartedEvent) -> None: ...

    def failed(self, event: object) -> None: ...

    def succeeded(self, event: CommandSucceededEvent) -> None:
        cursor = event.reply.get("cursor", {})
        batch = cursor.get("firstBatch", []) or cursor.get("nextBatch", [])
        for each in batch:
            if "data" in each:
                self.documents += 1
                self.characters += sum(map(len, each["data"].get("p") or ()))


async def test_a_read_of_large_entries_is_sent_little_more_than_it_takes(
    plain_url: str, make_store: MakeStore
) -> None:
    received = ReceivedDocuments()
    store = make_store(plain_url, "plain", max_bytes=10**9, event_listeners=[received])
    await store.open()
    for number in range(0, 120, 20):
        await store.append(
            [
                op(f"{each}", "insert", "video", ("p" * 60_000,))
                for each in range(number, number + 20)
            ]
        )
    mark = await store.checkpoint()
    await store.read(0, 2000)  # learns how large they are
    received.characters = 0
    entries = await whole_log(store)
    taken = sum(len(entry.data) for entry in entries)
    assert len(entries) == 120
    assert taken <= received.characters + 120 * 200 < 1.5 * taken
    received.characters = 0
    cursor: StateCursor | None = StateCursor(0, None)
    found = 0
    while cursor:
        states, cursor = await store.states(cursor, mark.offset, live_only=True, limit=500)
        found += len(states)
    assert found == 120
    assert received.characters < 2 * taken


async def test_the_fold_does_not_go_on_past_entries_of_a_restored_log(
    plain_url: str, make_store: MakeStore
) -> None:
    """They were not folded when the backup was made: the restored checkpoint stands before them."""
    store = make_store(plain_url, "plain", lease=60)
    await store.open()
    await store.append([op(str(number)) for number in range(1, 11)])
    await store.checkpoint()
    with direct(plain_url) as database:
        row = database.oplog_meta.find_one({"_id": "oplog_ops"})
        entries = [document(n, f"restored{n}", row["ts"] + n) for n in range(4, 16)]
        database.oplog_states.delete_many({"n": {"$gt": 3}})
        database.oplog_meta.update_one(
            {"_id": "oplog_ops"}, {"$set": {"n": 3, "ts": row["ts"] - 1}}
        )
        database.oplog_ops.delete_many({"n": {"$gt": 3}})
        database.oplog_ops.insert_many(reversed(entries))
    async with asyncio.timeout(120):
        while (await store.locate()).head.offset < 15:
            await asyncio.sleep(0.01)
        expected = {"video/1", "video/2", "video/3", *(f"video/restored{n}" for n in range(4, 16))}
        mark = await store.checkpoint()
    assert mark.offset == 15
    assert (await live_states(store)).keys() == expected
