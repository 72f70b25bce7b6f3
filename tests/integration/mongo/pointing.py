"""Messages under pointers for the tests of MongoDB."""

from pymongo.database import Database

from oplogd.model.event_id import Mark
from oplogd.model.message import of_payload
from oplogd.model.message_id import stamp
from oplogd.model.pointer import decode_voided
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import EntryKind, Topic
from oplogd.store.transactions import RecordLimits
from tests.integration.mongo.topics.topics import entries_of
from tests.kits.mongo.wire import Command

TEPHRA = 1_800_000_000_000_000_001
TIMEOUT_MS = 900_000
COLLECTIONS = ("oplog_pointers", "oplog_payloads", "oplog_rollbacks", "oplog_aborted")


def stores_messages(command: Command) -> bool:
    """Return whether a command stores messages under a pointer."""
    return command.get("insert") == "oplog_payloads"


async def publish(
    store: MongoStore, topic: Topic, *payloads: str, pointer: int = TEPHRA
) -> list[Mark]:
    given = [of_payload(each.encode()) for each in payloads]
    return [*await store.pointers.publish(topic.log, pointer, given, TIMEOUT_MS)]


async def store_messages(
    store: MongoStore, topic: Topic, *payloads: str, pointer: int = TEPHRA
) -> None:
    given = [of_payload(each.encode()) for each in payloads]
    await store.pointers.store(topic.log, pointer, given, TIMEOUT_MS, RecordLimits())


async def publish_stored(store: MongoStore, topic: Topic, pointer: int = TEPHRA) -> Mark:
    mark = await store.pointers.publish_stored(topic.log, pointer, TIMEOUT_MS)
    assert mark is not None
    return mark


def stamp_of(mark: Mark) -> int:
    return stamp(mark.ms, mark.sequence)


async def seen(store: MongoStore, topic: Topic) -> list[str]:
    """Return the payloads that an uncommitted reader sees."""
    found: list[str] = []
    for entry in await entries_of(store.topics, topic):
        if entry.event == EntryKind.PUBLISH:
            records = await store.topics.log(topic).expand(entry, -1, 1_000)
            found += [record.data for record in records]
        elif entry.event in (EntryKind.MESSAGE, EntryKind.DIRECT):
            found.append(entry.data)
    return [data.removeprefix('{"payload":"').removesuffix('"}') for data in found]


async def kinds(store: MongoStore, topic: Topic) -> list[str]:
    return [str(each.event) for each in await entries_of(store.topics, topic)]


async def voided(store: MongoStore, topic: Topic) -> list[list[tuple[int, int]]]:
    """Return the runs of each VOID entry of a rollback."""
    found = [
        decode_voided(each.data)
        for each in await entries_of(store.topics, topic)
        if each.event == EntryKind.VOID
    ]
    return [each.runs for each in found if each is not None]


def counts(database: Database[Document]) -> list[int]:
    """Return the number of documents of pointers: open ones, stored messages, things to do."""
    return [database[name].count_documents({"_id": {"$ne": "#"}}) for name in COLLECTIONS]
