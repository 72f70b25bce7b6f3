"""The blocks of the event stream as bytes, and the routes of entries to them. No I/O.

Clients of the first server split at a bare ``\\n``, expect id, event and data in this order, and
read no other block.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from urllib.parse import quote

from oplogd.model.event_id import Mark, prefix
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message import message_hash
from oplogd.model.message_id import MessageId
from oplogd.model.names import TopicName
from oplogd.model.operation import Data
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation
from oplogd.store import Entry, State, decode_stored
from oplogd.store.topics import TopicEntry, TopicRecord, id_of_record
from oplogd.stream.ring.index import Index
from oplogd.stream.ring.postings import Posting
from oplogd.stream.ring.window import Routed

HEARTBEAT = b":\n"
RESET = b"id: 1\nevent: reset\ndata:\n\n"
# Some messages behind the consumer's position are gone. The id means: from the oldest message.
TOPIC_RESET = b"id: 0\nevent: reset\ndata:\n\n"

# Returns an entry's mark, block and postings, by the postings of its ring.
Route: TypeAlias = Callable[[Any, Index], Routed]

# Digits of an id behind the time and the sequence, for messages not stored before.
_NOT_STORED = 20 * "0"

_ID_AT = len("id: ")
_ID_DIGITS = 40

# Bytes of a block before its data.
_DATA_AT = len(f"id: {MessageId(0, 0)}\nevent: message\ndata: ")

# A test of membership costs less than ``reading``.
_PASSING = frozenset(
    kind
    for kind in EntryKind
    if Reading.PASS in (reading(kind, isolation, Reading.PASS) for isolation in Isolation)
)
# The kinds that some readers read.
_READ = _PASSING | {EntryKind.COMMIT, EntryKind.PUBLISH}


def held_comment(pointer: int, topic: TopicName, seconds: float) -> bytes:
    """Return the heartbeat of a stream waiting for a pointer for so long."""
    return f": held by pointer {pointer} of {topic} since {seconds:.0f} s\n".encode()


def live_frame(position: str) -> bytes:
    return f"id: {position}\nevent: live\ndata:\n\n".encode()


def checkpoint_frame(position: str) -> bytes:
    """Return a block without an event: it moves the consumer's last event id."""
    return f"id: {position}\n\n".encode()


def data_of(frame: bytes) -> Data:
    """Decode the operation in a block made by ``Framer.entry``."""
    return decode_stored(frame[frame.index(b"\ndata: ") + 7 : -2].decode())


def event_of(frame: bytes) -> str:
    """Return the event of the operation in a block made by ``Framer.entry``."""
    at = frame.index(b"\nevent: ") + 8
    return frame[at : frame.index(b"\n", at)].decode()


class Framer:
    """Encodes entries and states as blocks. ``route``: see ``Route``.

    ``object_url``: a template with ``{{type}}`` and ``{{id}}``, or empty. Without one, the decoded
    data is not read and may be None.
    """

    def __init__(self, object_url: str = "") -> None:
        self.object_url = object_url
        self._prefix_ms = -1
        self._prefix = ""

    def route(self, entry: Entry, index: Index) -> Routed:
        """Return the mark, the block and the postings of an entry."""
        data = decode_stored(entry.data)
        mark = Mark(entry.offset, entry.ms)
        return mark, self.entry(entry, data), index.postings_of(entry.event, data)

    def entry(self, entry: Entry, data: Data | None) -> bytes:
        offset, ms, event, text = entry
        if ms != self._prefix_ms:  # entries written together share their time
            self._prefix_ms = ms
            self._prefix = prefix(ms)
        if data and self.object_url:
            text = self.with_ref(text, data)
        return f"id: {self._prefix}{offset:012x}\nevent: {event}\ndata: {text}\n\n".encode()

    def state(self, state: State, data: Data | None) -> bytes:
        """Encode a state for a replication: an update of a live object is sent as ``insert``."""
        text = self.with_ref(state.data, data) if data and self.object_url else state.data
        event = "delete" if state.deleted else "insert"
        return f"id: {state.cursor.ms}\nevent: {event}\ndata: {text}\n\n".encode()

    def ref(self, data: Data) -> str:
        """Return the URL of an object. There must be a template."""
        url = self.object_url.replace("{{type}}", quote(data.type, safe=""))
        return url.replace("{{id}}", quote(data.id, safe=""))

    def with_ref(self, text: str, data: Data) -> str:
        """Add the member ``ref`` to a text with ``data``."""
        return f'{text[:-1]},"ref":{json.dumps(self.ref(data))}}}'


def mark_of(entry: TopicEntry) -> Mark:
    return Mark(entry.offset, entry.ms, entry.sequence)


def route_message(entry: TopicEntry, index: Index) -> Routed:
    """Route an entry of a topic. The blocks are those for uncommitted readers."""
    posted: tuple[Posting, ...] = ()
    if index.has_shards and entry.event in _READ:
        posted = index.postings_of_shards(hash_of_entry(entry))
    return mark_of(entry), uncommitted_frame(entry), posted


def hash_of_entry(entry: TopicEntry) -> int | None:
    """Return the hash that decides about the shard of an entry.

    None: its records, or the messages stored under its pointer, may be of any shard.
    """
    if entry.event in _PASSING:
        return message_hash(_id_of(entry), entry.data)
    return None


def is_of_another(shard: Shard, entry: TopicEntry) -> bool:
    """Return whether an entry has nothing for the readers of a shard."""
    hash_ = hash_of_entry(entry)
    return hash_ is not None and not shard.has(hash_)


def hash_of_frame(frame: bytes) -> int:
    """Return the hash of the message in a block with one message."""
    return message_hash(frame[_ID_AT : _ID_AT + _ID_DIGITS].decode(), message_data(frame))


def uncommitted_frame(entry: TopicEntry) -> bytes:
    """Return the block of an entry for uncommitted readers; empty if they get none.

    They have read the message of a LATE entry at its first place.
    """
    return b"" if entry.event == EntryKind.LATE else message_frame(entry)


def message_frame(entry: TopicEntry) -> bytes:
    """Return the block of an entry that is a message; empty for any other."""
    if entry.event not in _PASSING:
        return b""
    return f"id: {_id_of(entry)}\nevent: message\ndata: {entry.data}\n\n".encode()


def _id_of(entry: TopicEntry) -> str:
    return f"{entry.ms:016x}{entry.sequence:04x}{_NOT_STORED}"


def message_data(frame: bytes) -> str:
    """Return the data in a block made by ``message_frame``."""
    return frame[_DATA_AT:-2].decode()


def record_frames(entry: TopicEntry, records: Iterable[TopicRecord], last: int) -> list[bytes]:
    """Return the blocks of an entry's records. Expired records have none.

    ``last``: number of the entry's last record.
    """
    return [
        f"id: {id_of_record(entry, number, last)}\nevent: message\ndata: {data}\n\n".encode()
        for number, data, _ in records
        if data
    ]
