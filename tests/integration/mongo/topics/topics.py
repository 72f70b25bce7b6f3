"""Topics for the tests of MongoDB: commands to disturb."""

from collections.abc import Sequence

from pymongo.database import Database

from oplogd.model.message import of_payload
from oplogd.model.names import TopicName
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import MessageBatch, Outcome, Placed, Topic, TopicEntry, Topics
from tests.kits.mongo.wire import Command

ENTRIES = "oplog_entries"
NAME = TopicName("ns", "t")


def inserts_entries(command: Command) -> bool:
    """Return whether a command appends to topics."""
    return command.get("insert") == ENTRIES


def batch(topic: Topic, *payloads: str) -> MessageBatch:
    return MessageBatch(topic.log, [of_payload(each.encode()) for each in payloads])


async def append(topics: Topics, topic: Topic, *payloads: str) -> Outcome:
    (outcome,) = await topics.append([batch(topic, *payloads)])
    return outcome


async def place(topics: Topics, topic: Topic, *payloads: str) -> Placed:
    """Append payloads to a topic that exists."""
    outcome = await append(topics, topic, *payloads)
    assert isinstance(outcome, Placed)
    return outcome


async def entries_of(topics: Topics, topic: Topic) -> list[TopicEntry]:
    entries: list[TopicEntry] = []
    while page := await topics.log(topic).read(entries[-1].offset if entries else 0, 1000):
        entries += page
    return entries


async def payloads_of(topics: Topics, topic: Topic) -> list[str]:
    return payloads(await entries_of(topics, topic))


def payloads(entries: Sequence[TopicEntry]) -> list[str]:
    return [each.data.removeprefix('{"payload":"').removesuffix('"}') for each in entries]


def stored(database: Database[Document], topic: Topic) -> list[tuple[int, str]]:
    """Return offset and kind of all entries of a log in the database."""
    of_log = {"_id": {"$regex": f"^{topic.log:06x}"}}
    found = database[ENTRIES].find(of_log, {"kind": 1}).sort("_id", 1)
    return [(int(each["_id"][6:], 16), each["kind"]) for each in found]
