"""Messages for the tests of topics, and short ways to publish and read them."""

from collections.abc import Iterable

from oplogd.model.event_id import Mark
from oplogd.model.message import Message, decode_content, of_payload
from oplogd.model.names import TopicName
from oplogd.store.topics import (
    EntryKind,
    MessageBatch,
    Placed,
    Topic,
    TopicEntry,
    TopicLog,
    Topics,
)

NAME = TopicName("ns", "t")
LAST_OF_MS = 0xFFFF


def named(topic: str, namespace: str = "ns") -> TopicName:
    return TopicName(namespace, topic)


def message(payload: object, ttl: int | None = None) -> Message:
    return of_payload(str(payload).encode(), ttl)


def messages(payloads: Iterable[object], ttl: int | None = None) -> list[Message]:
    return [message(payload, ttl) for payload in payloads]


async def publish(
    topics: Topics, topic: Topic, *payloads: object, ttl: int | None = None
) -> Placed:
    """Append the payloads as one batch; it must not be refused."""
    return await publish_all(topics, topic, messages(payloads, ttl))


async def publish_all(topics: Topics, topic: Topic, given: list[Message]) -> Placed:
    (outcome,) = await topics.append([MessageBatch(topic.log, given)])
    assert isinstance(outcome, Placed)
    return outcome


async def entries_of(log: TopicLog, after: int = 0, limit: int = 1000) -> list[TopicEntry]:
    """Return all entries after an offset, read page by page."""
    entries: list[TopicEntry] = []
    while page := await log.read(after, limit):
        assert len(page) <= limit
        entries += page
        after = page[-1].offset
    return entries


def payloads(entries: list[TopicEntry]) -> list[str | None]:
    """Return the payloads of entries, None for void ones."""
    assert all(entry.data == "" for entry in entries if entry.event == EntryKind.VOID)
    return [
        None if entry.event == EntryKind.VOID else decode_content(entry.data).payload
        for entry in entries
    ]


async def payloads_of(topics: Topics, topic: Topic) -> list[str | None]:
    return payloads(await entries_of(topics.log(topic)))


def mark(entry: TopicEntry) -> Mark:
    return Mark(entry.offset, entry.ms, entry.sequence)


def ids(entries: list[TopicEntry]) -> list[tuple[int, int]]:
    return [(entry.ms, entry.sequence) for entry in entries]
