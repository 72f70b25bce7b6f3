"""Short ways to publish under pointers in the tests, and the three kinds of readers of a topic.

The stores and their marks are those of the tests of transactions: ``txn_store`` and its kin.
"""

from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.model.isolation import Reading, reading
from oplogd.model.message_id import MessageId, stamp
from oplogd.model.pointer import MAX_POINTER, Judge, Snapshot, by_decisions, decode_voided
from oplogd.model.transaction import Isolation, Marker, decode_marker
from oplogd.store.topics import EntryKind, Topic, TopicEntry, TopicLog, id_of_record
from oplogd.store.transactions import RecordLimits
from tests.kits.store.messages import entries_of, messages
from tests.kits.store.transacting import LIMITS, Seen, StoreHandle, payload_of

TIMEOUT_MS = 900_000
# As the transaction manager Tephra numbers its transactions: a time in ms, times a million.
TEPHRA = 1_800_000_000_000_000_001
POINTERS = [0, 7, TEPHRA, MAX_POINTER]

WITH_POINTER = (EntryKind.DIRECT, EntryKind.PUBLISH)
DECISIONS = (EntryKind.COMMIT, EntryKind.ABORT)


class Found(NamedTuple):
    """``held_by``: the pointer at whose entry the reader stopped; None if it read all."""

    seen: list[Seen]
    held_by: int | None

    @property
    def payloads(self) -> list[str]:
        return [each.payload for each in self.seen]


async def publish_under(
    store: StoreHandle,
    topic: Topic,
    pointer: int,
    *payloads: object,
    ttl: int | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> list[Mark]:
    given = messages(payloads, ttl)
    return [*await store.pointers.publish(topic.log, pointer, given, timeout_ms)]


async def store_under(
    store: StoreHandle,
    topic: Topic,
    pointer: int,
    *payloads: object,
    ttl: int | None = None,
    timeout_ms: int = TIMEOUT_MS,
    limits: RecordLimits = LIMITS,
) -> None:
    given = messages(payloads, ttl)
    await store.pointers.store(topic.log, pointer, given, timeout_ms, limits)


async def publish_stored(
    store: StoreHandle, topic: Topic, pointer: int, timeout_ms: int = TIMEOUT_MS
) -> Mark:
    mark = await store.pointers.publish_stored(topic.log, pointer, timeout_ms)
    assert mark is not None, "nothing was stored"
    return mark


def stamp_of(mark: Mark) -> int:
    return stamp(mark.ms, mark.sequence)


async def entry_at(store: StoreHandle, topic: Topic, mark: Mark) -> TopicEntry:
    """Return the entry that has this mark."""
    (entry,) = await store.topics.log(topic).read(mark.offset - 1, 1)
    assert Mark(entry.offset, entry.ms, entry.sequence) == mark
    return entry


async def kinds_in(store: StoreHandle, topic: Topic) -> list[tuple[str, int | None]]:
    """Return kind and pointer of all entries; offsets are dense."""
    entries = await entries_of(store.topics.log(topic))
    offsets = [entry.offset for entry in entries]
    assert offsets == [*range(offsets[0], offsets[0] + len(offsets))] if offsets else True
    for entry in entries:
        assert (entry.pointer is not None) == (entry.event in WITH_POINTER)
    return [(entry.event, entry.pointer) for entry in entries]


async def markers_in(store: StoreHandle, topic: Topic) -> list[tuple[str, Marker]]:
    """Return kind and marker of all COMMIT and ABORT entries."""
    entries = await entries_of(store.topics.log(topic))
    return [(each.event, decode_marker(each.data)) for each in entries if each.event in DECISIONS]


async def runs_in(store: StoreHandle, topic: Topic) -> list[tuple[str, list[int]]]:
    """Return the pointer, and the offsets in all runs, of each VOID entry of a rollback."""
    found = []
    for entry in await entries_of(store.topics.log(topic)):
        voided = decode_voided(entry.data) if entry.event == EntryKind.VOID else None
        if voided is not None:
            offsets = [first + k for first, count in voided.runs for k in range(count)]
            assert offsets == sorted(set(offsets)), "runs ascend"
            found.append((voided.txn, offsets))
    return found


async def numbers_of(log: TopicLog, entry: TopicEntry) -> list[int]:
    return [record.number for record in await log.expand(entry, -1, 100_000)]


async def uncommitted(store: StoreHandle, topic: Topic, page: int = 2) -> list[str]:
    """Return the payloads that uncommitted readers read."""
    found = await _read(store, topic, Isolation.READ_UNCOMMITTED, _holding, page)
    assert found.held_by is None
    return found.payloads


async def committed(store: StoreHandle, topic: Topic, page: int = 2) -> Found:
    """Return all that a committed reader without a snapshot reads."""
    entries = await entries_of(store.topics.log(topic))
    pointers = {entry.pointer for entry in entries if entry.pointer is not None}
    decisions = await store.topics.log(topic).decisions(pointers)
    return await _read(store, topic, Isolation.READ_COMMITTED, by_decisions(decisions), page)


async def with_snapshot(
    store: StoreHandle, topic: Topic, snapshot: Snapshot, page: int = 2
) -> Found:
    return await _read(store, topic, Isolation.READ_COMMITTED, snapshot.verdict, page)


async def _read(
    store: StoreHandle, topic: Topic, isolation: Isolation, judge: Judge, page: int
) -> Found:
    """Read a topic from its front. ``page``: records per call of ``expand``."""
    log = store.topics.log(topic)
    seen: list[Seen] = []
    for entry in await entries_of(log):
        verdict = Reading.HOLD if entry.pointer is None else judge(entry.pointer)
        match reading(entry.event, isolation, verdict):
            case Reading.HOLD:
                return Found(seen, entry.pointer)
            case Reading.PASS:
                id_ = str(MessageId(entry.ms, entry.sequence))
                seen.append(Seen(id_, payload_of(entry.data)))
            case Reading.EXPAND:
                seen += await _expanded(log, entry, page)
    return Found(seen, None)


async def _expanded(log: TopicLog, entry: TopicEntry, page: int) -> list[Seen]:
    marker = decode_marker(entry.data)
    seen, count, after = [], 0, -1
    while found := await log.expand(entry, after, page):
        assert len(found) <= page
        for number, data, _ in found:
            assert number > after
            after = number
            count += 1
            if data:
                id_ = str(id_of_record(entry, number, marker.last))
                seen.append(Seen(id_, payload_of(data)))
    assert (count, after) == (marker.records, marker.last)
    return seen


def _holding(_: int) -> Reading:
    return Reading.HOLD
