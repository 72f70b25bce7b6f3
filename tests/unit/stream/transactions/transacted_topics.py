"""Topics with transactions in memory, and the events that each kind of reader must get."""

from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import MessageId, record_id
from oplogd.model.names import TopicName
from oplogd.model.transaction import Isolation, Record, decode_marker
from oplogd.store.topics import EntryKind, Topic, TopicEntry
from oplogd.store.transactions import NewTransaction, RecordLimits
from tests.kits.stream.topic_worlds import TopicWorld, message
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions

UNCOMMITTED = Isolation.READ_UNCOMMITTED
COMMITTED = Isolation.READ_COMMITTED

_FOREVER_MS = 10**12


class Event(NamedTuple):
    """``offset``: of its entry. ``expires_ms``: end of its own time to live, 0 without one."""

    id: MessageId
    data: str
    offset: int
    expires_ms: int


def events_of(
    entry: TopicEntry, isolation: Isolation, topics: MemoryTopics, topic: Topic
) -> list[Event]:
    """Return the events of an entry. Written out, so that a fault in the rule is noticed."""
    ms, sequence = entry.ms, entry.sequence
    itself = Event(MessageId(ms, sequence), entry.data, entry.offset, entry.expires_ms)
    if entry.event == EntryKind.MESSAGE:
        return [itself]
    if isolation is UNCOMMITTED:
        return [itself] if entry.event == EntryKind.DEFERRED else []
    if entry.event != EntryKind.COMMIT:
        return []
    marker = decode_marker(entry.data)
    written = topics.records.get((topic.log, marker.txn), {})
    return [
        Event(
            record_id(ms, sequence, lsn, is_last=lsn == marker.last),
            record.data,
            entry.offset,
            ms + record.expires_ms - record.ms if record.expires_ms else 0,
        )
        for lsn, record in sorted(written.items())
        if lsn <= marker.last
    ]


class Writer:
    """One transaction. ``topic``: the only one that it may write to, None: any."""

    def __init__(
        self, transactions: MemoryTransactions, id_: int, topic: Topic | None = None
    ) -> None:
        self._transactions = transactions
        self.id = id_
        self.topic = topic
        self.records = 0

    async def write(self, topic: Topic, *texts: str | Message) -> None:
        """Write records with the next lsn."""
        await self.write_at(topic, range(self.records, self.records + len(texts)), *texts)

    async def write_at(self, topic: Topic, lsns: range, *texts: str | Message) -> None:
        records = [
            Record(lsn, topic.log, message(text) if isinstance(text, str) else text, str(lsn))
            for lsn, text in zip(lsns, texts, strict=True)
        ]
        await self._transactions.write(self.id, records, RecordLimits())
        self.records += len(texts)

    async def commit(self) -> dict[int, Mark]:
        """Commit. Return the marks of the COMMIT entries by log."""
        commit = await self._transactions.commit(self.id, self.records)
        return {each.log: each.mark for each in commit.logs if each.mark is not None}

    async def abort(self) -> None:
        await self._transactions.abort(self.id)


class Transacting:
    """Begins transactions over the topics of a world. The commit log is a topic of its own."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self.transactions = MemoryTransactions(world.topics)

    async def begin(self, topic: Topic | None = None) -> Writer:
        """Begin a transaction. ``topic``: its only topic, whose log is the commit log."""
        log = topic or await self._group()
        only = topic.log if topic else None
        group = None if topic else "default"
        new = NewTransaction(log.log, group, only, _FOREVER_MS)
        return Writer(self.transactions, (await self.transactions.begin(new)).id, topic)

    async def _group(self) -> Topic:
        name = TopicName("ns", "_txn.default")
        return await self._world.topics.find(name) or await self._world.create(name.topic)
