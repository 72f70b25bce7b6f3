"""Routers: they decide the block of an entry, and the postings that it concerns. No I/O."""

from typing import Any, ClassVar, Protocol, TypeAlias

from oplogd.event_id import Mark
from oplogd.message_id import MessageId
from oplogd.store.topics import EntryKind, TopicEntry
from oplogd.stream.postings import Index, Posting

# The mark of an entry, its block (empty: for nobody), and the postings that it concerns.
Routed: TypeAlias = tuple[Mark, bytes, tuple[Posting, ...]]


class Router(Protocol):
    """Knows the entries of one kind of log. The ring only knows their marks and blocks."""

    @property
    def has_sequences(self) -> bool:
        """Whether marks of the log have a sequence."""

    def route(self, entry: Any, index: Index) -> Routed:
        """Return the mark, the block and the postings of an entry.

        ``index``: the postings of the ring.
        """


class MessageRouter:
    """Routes the entries of topics: every message concerns everybody, other entries nobody."""

    has_sequences: ClassVar[bool] = True

    def route(self, entry: TopicEntry, index: Index) -> Routed:
        return Mark(entry.offset, entry.ms, entry.sequence), message_frame(entry), ()


# Digits of an id behind the time and the sequence, for messages that were not stored before.
_NOT_STORED = 20 * "0"

# Bytes of a block before its data.
_DATA_AT = len(f"id: {MessageId(0, 0)}\nevent: message\ndata: ")


def message_frame(entry: TopicEntry) -> bytes:
    """Return the block of a message; empty for an entry of another kind."""
    if entry.event != EntryKind.MESSAGE:
        return b""
    id_ = f"{entry.ms:016x}{entry.sequence:04x}{_NOT_STORED}"
    return f"id: {id_}\nevent: message\ndata: {entry.data}\n\n".encode()


def message_data(frame: bytes) -> str:
    """Return the data in a block that ``message_frame`` made."""
    return frame[_DATA_AT:-2].decode()
