"""The blocks of the event stream as bytes. No I/O.

Clients of the first server split at a bare ``\\n``, expect id, event and data in this order, and
read no other block.
"""

import json
from urllib.parse import quote

from oplogd.model.event_id import Mark, prefix
from oplogd.model.names import TopicName
from oplogd.model.operation import Data
from oplogd.store import Entry, State, decode_stored
from oplogd.stream.ring.postings import Index
from oplogd.stream.ring.router import Routed

HEARTBEAT = b":\n"
RESET = b"id: 1\nevent: reset\ndata:\n\n"
# Messages that followed the consumer's position are gone. The id means: from the oldest message.
TOPIC_RESET = b"id: 0\nevent: reset\ndata:\n\n"


def held_comment(pointer: int, topic: TopicName, seconds: float) -> bytes:
    """Return the heartbeat of a stream that has waited for a pointer for so long."""
    return f": held by pointer {pointer} of {topic} since {seconds:.0f} s\n".encode()


def live_frame(position: str) -> bytes:
    return f"id: {position}\nevent: live\ndata:\n\n".encode()


def checkpoint_frame(position: str) -> bytes:
    """Return a block that only moves the consumer's last event id.

    By the SSE standard it dispatches no event.
    """
    return f"id: {position}\n\n".encode()


def data_of(frame: bytes) -> Data:
    """Decode the operation in a block that ``Framer.entry`` made."""
    return decode_stored(frame[frame.index(b"\ndata: ") + 7 : -2].decode())


class Framer:
    """Encodes entries and states as blocks. ``route``: see ``Route``.

    ``object_url``: a template with ``{{type}}`` and ``{{id}}``, or empty.
    """

    def __init__(self, object_url: str = "") -> None:
        self._object_url = object_url
        self._prefix_ms = -1
        self._prefix = ""

    @property
    def needs_data(self) -> bool:
        """Whether ``entry`` and ``state`` read the decoded data. If not, it may be None."""
        return bool(self._object_url)

    def route(self, entry: Entry, index: Index) -> Routed:
        """Return the mark, the block and the postings of an entry."""
        data = decode_stored(entry.data)
        mark = Mark(entry.offset, entry.ms)
        return mark, self.entry(entry, data), index.postings_of(data)

    def entry(self, entry: Entry, data: Data | None) -> bytes:
        offset, ms, event, text = entry
        if ms != self._prefix_ms:  # entries written together share their time
            self._prefix_ms = ms
            self._prefix = prefix(ms)
        if data and self._object_url:
            text = self._with_ref(text, data)
        return f"id: {self._prefix}{offset:012x}\nevent: {event}\ndata: {text}\n\n".encode()

    def state(self, state: State, data: Data | None) -> bytes:
        """Encode a state for a replication: an update of a live object is sent as ``insert``."""
        text = self._with_ref(state.data, data) if data and self._object_url else state.data
        event = "delete" if state.deleted else "insert"
        return f"id: {state.cursor.ms}\nevent: {event}\ndata: {text}\n\n".encode()

    def _with_ref(self, text: str, data: Data) -> str:
        url = self._object_url.replace("{{type}}", quote(data.type, safe=""))
        url = url.replace("{{id}}", quote(data.id, safe=""))
        return f'{text[:-1]},"ref":{json.dumps(url)}}}'
