"""Records for the tests of transactions, short ways to write them, and the two kinds of readers."""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from oplogd.model.message import Message, decode_content, of_payload
from oplogd.model.message_id import MessageId, record_id
from oplogd.model.names import TopicName
from oplogd.model.operation import Operation
from oplogd.model.transaction import Marker, Record, decode_marker
from oplogd.store import Entry
from oplogd.store.pointers import Pointers
from oplogd.store.topics import EntryKind, Topic, TopicEntry, Topics
from oplogd.store.transactions import (
    Commit,
    NewTransaction,
    RecordLimits,
    Transaction,
    Transactions,
)
from tests.kits.store.messages import entries_of

LIMITS = RecordLimits()
TIMEOUT_MS = 60_000
# For `parametrize("txn_kits", EVERY, indirect=True)`: the slow stand-in too.
EVERY = ["memory", "sqlite", "mongo-capped", "mongo-plain"]
TWENTY_MINUTES_MS = 20 * 60_000


class StoreHandle(Protocol):
    """The part of a store that the tests of transactions and of pointers use."""

    @property
    def topics(self) -> Topics: ...

    @property
    def transactions(self) -> Transactions: ...

    @property
    def pointers(self) -> Pointers: ...

    async def close(self) -> None: ...

    async def append(self, operations: Sequence[Operation]) -> None: ...

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]: ...


class Seen(NamedTuple):
    """A message as a reader sees it."""

    id: str
    payload: str


def record(lsn: int, topic: Topic, payload: object, ttl: int | None = None) -> Record:
    return _record(lsn, topic.log, of_payload(str(payload).encode(), ttl))


def oplog_record(lsn: int, operation: Operation) -> Record:
    return _record(lsn, 0, operation)


def _record(lsn: int, log: int, content: Message | Operation) -> Record:
    return Record(lsn, log, content, sha256(repr((log, content)).encode()).hexdigest())


def records(topic: Topic, *payloads: object, first: int = 0) -> list[Record]:
    """Return records of one topic, with lsns from ``first`` on."""
    return [record(lsn, topic, payload) for lsn, payload in enumerate(payloads, first)]


async def group_log(store: StoreHandle, group: str = "default") -> Topic:
    """Return the topic of a group's commit log. The first call creates it."""
    name = TopicName("system", f"_txn.{group}")
    return await store.topics.find(name) or await store.topics.create(name, None)


async def begin(
    store: StoreHandle,
    *,
    group: str = "default",
    topic: Topic | None = None,
    only_log: int | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> Transaction:
    """Begin a transaction of a group, or with a topic."""
    new = await new_transaction(store, group, topic=topic, timeout_ms=timeout_ms)
    return await store.transactions.begin(new if topic else new._replace(only_log=only_log))


async def new_transaction(
    store: StoreHandle,
    group: str = "default",
    *,
    topic: Topic | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> NewTransaction:
    """Return a new transaction of a group, or with a topic."""
    if topic is not None:
        return NewTransaction(topic.log, None, topic.log, timeout_ms)
    return NewTransaction((await group_log(store, group)).log, group, None, timeout_ms)


async def write(
    store: StoreHandle, transaction: Transaction, *written: Record, limits: RecordLimits = LIMITS
) -> Transaction:
    return await store.transactions.write(transaction.id, written, limits)


async def committed_with(store: StoreHandle, *written: Record, group: str = "default") -> Commit:
    """Begin, write and commit in one go."""
    transaction = await begin(store, group=group)
    await write(store, transaction, *written)
    return await store.transactions.commit(transaction.id, len(written))


async def seen_uncommitted(store: StoreHandle, topic: Topic, after: int = 0) -> list[Seen]:
    """Return the messages that uncommitted readers see."""
    return [
        Seen(str(MessageId(entry.ms, entry.sequence)), payload_of(entry.data))
        for entry in await entries_of(store.topics.log(topic), after)
        if entry.event in (EntryKind.MESSAGE, EntryKind.DEFERRED)
    ]


async def seen_committed(store: StoreHandle, topic: Topic, page: int = 2) -> list[Seen]:
    """Return the messages that committed readers see. ``page``: records per read of a commit."""
    log = store.topics.log(topic)
    seen = []
    for entry in await entries_of(log):
        if entry.event == EntryKind.MESSAGE:
            seen.append(Seen(str(MessageId(entry.ms, entry.sequence)), payload_of(entry.data)))
        elif entry.event == EntryKind.COMMIT:
            last = decode_marker(entry.data).last
            after = -1
            while found := await log.expand(entry, after, page):
                assert len(found) <= page
                for lsn, data, _ in found:
                    assert lsn > after
                    after = lsn
                    if data:
                        id_ = record_id(entry.ms, entry.sequence, lsn, is_last=lsn == last)
                        seen.append(Seen(str(id_), payload_of(data)))
            assert after == last
    return seen


async def payloads_uncommitted(store: StoreHandle, topic: Topic) -> list[str]:
    return [each.payload for each in await seen_uncommitted(store, topic)]


async def payloads_committed(store: StoreHandle, topic: Topic) -> list[str]:
    return [each.payload for each in await seen_committed(store, topic)]


async def entries_with(
    store: StoreHandle, topic: Topic, *kinds: EntryKind
) -> list[tuple[EntryKind, Marker]]:
    """Return the kinds and markers of the entries of these kinds."""
    found = await entries_of(store.topics.log(topic))
    return [
        (EntryKind(each.event), decode_marker(each.data)) for each in found if each.event in kinds
    ]


async def decisions_in(store: StoreHandle, topic: Topic) -> list[tuple[EntryKind, Marker]]:
    """Return the COMMIT and ABORT entries of a topic."""
    return await entries_with(store, topic, EntryKind.COMMIT, EntryKind.ABORT)


async def commits_in(store: StoreHandle, topic: Topic) -> list[TopicEntry]:
    found = await entries_of(store.topics.log(topic))
    return [entry for entry in found if entry.event == EntryKind.COMMIT]


async def told_in(store: StoreHandle, group: str = "default") -> list[tuple[str | None, str]]:
    """Return the keys and payloads of a group's commit log."""
    found = await entries_of(store.topics.log(await group_log(store, group)))
    assert {entry.event for entry in found} <= {EntryKind.MESSAGE}
    contents = [decode_content(entry.data) for entry in found]
    return [(each.key, each.payload or "") for each in contents]


def payload_of(data: str) -> str:
    payload = decode_content(data).payload
    assert payload is not None
    return payload
