"""Routers: they decide the block of an entry, and the postings that it concerns. No I/O."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import Isolation
from oplogd.store.topics import TopicEntry, TopicRecord, id_of_record
from oplogd.stream.ring.postings import Index, Posting

# The mark of an entry, its block (empty: for no reader), and the postings that it concerns.
Routed: TypeAlias = tuple[Mark, bytes, tuple[Posting, ...]]


# Returns an entry's mark, block and postings, by the postings of its ring.
Route: TypeAlias = Callable[[Any, Index], Routed]


def mark_of(entry: TopicEntry) -> Mark:
    return Mark(entry.offset, entry.ms, entry.sequence)


def route_message(entry: TopicEntry, index: Index) -> Routed:
    """Route an entry of a topic. The blocks are those for uncommitted readers."""
    return Mark(entry.offset, entry.ms, entry.sequence), uncommitted_frame(entry), ()


# Digits of an id behind the time and the sequence, for messages that were not stored before.
_NOT_STORED = 20 * "0"

# Bytes of a block before its data.
_DATA_AT = len(f"id: {MessageId(0, 0)}\nevent: message\ndata: ")


# A test of membership costs less than ``reading``.
_PASSING = frozenset(
    kind
    for kind in EntryKind
    if Reading.PASS in (reading(kind, isolation, Reading.PASS) for isolation in Isolation)
)


def uncommitted_frame(entry: TopicEntry) -> bytes:
    """Return the block of an entry for uncommitted readers; empty if they get none.

    They have read the message of a LATE entry at its first place.
    """
    return b"" if entry.event == EntryKind.LATE else message_frame(entry)


def message_frame(entry: TopicEntry) -> bytes:
    """Return the block of an entry that is a message; empty for any other."""
    if entry.event not in _PASSING:
        return b""
    id_ = f"{entry.ms:016x}{entry.sequence:04x}{_NOT_STORED}"
    return f"id: {id_}\nevent: message\ndata: {entry.data}\n\n".encode()


def message_data(frame: bytes) -> str:
    """Return the data in a block that ``message_frame`` made."""
    return frame[_DATA_AT:-2].decode()


def record_frames(entry: TopicEntry, records: Iterable[TopicRecord], last: int) -> list[bytes]:
    """Return the blocks of an entry's records. Records that have expired have none.

    ``last``: number of the entry's last record.
    """
    return [
        f"id: {id_of_record(entry, number, last)}\nevent: message\ndata: {data}\n\n".encode()
        for number, data, _ in records
        if data
    ]
