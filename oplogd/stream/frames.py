"""What goes over the wire: operations, states and marks as bytes of an event stream. No I/O.

Clients of the first server split at a bare ``\\n``, want id, event and data in this order, and know no other block.
"""

import json
from urllib.parse import quote

from oplogd.event_id import Mark, format_id, prefix
from oplogd.operation import Data
from oplogd.store import Entry, State, decode_stored

HEARTBEAT = b":\n"
RESET = b"id: 1\nevent: reset\ndata:\n\n"


def live_frame(position: str) -> bytes:
    return f"id: {position}\nevent: live\ndata:\n\n".encode()


def checkpoint_frame(position: str) -> bytes:
    """A block that only moves the consumer's last event id (by the SSE standard no event is dispatched)."""
    return f"id: {position}\n\n".encode()


def data_of(frame: bytes) -> Data:
    """Take apart the operation in a block that ``Framer.entry`` made."""
    return decode_stored(frame[frame.index(b"\ndata: ") + 7 : -2].decode())


class Framer:
    """Encodes what the store returns. ``object_url`` is a template with ``{{type}}`` and ``{{id}}``, or empty."""

    def __init__(self, object_url: str = "") -> None:
        self._object_url = object_url
        self._prefix_ms = -1
        self._prefix = ""

    @property
    def needs_data(self) -> bool:
        """Whether ``entry`` and ``state`` look at the decoded data; if not, it may be None."""
        return bool(self._object_url)

    def entry(self, entry: Entry, data: Data | None) -> bytes:
        offset, ms, event, text = entry
        if ms != self._prefix_ms:  # entries written together share their time
            self._prefix_ms = ms
            self._prefix = prefix(ms)
        if data and self._object_url:
            text = self._with_ref(text, data)
        return f"id: {self._prefix}{offset:012x}\nevent: {event}\ndata: {text}\n\n".encode()

    def state(self, state: State, data: Data | None) -> bytes:
        """A state as replication sends it: an update of a live object is an ``insert``."""
        text = self._with_ref(state.data, data) if data and self._object_url else state.data
        event = "delete" if state.deleted else "insert"
        return f"id: {state.cursor.ms}\nevent: {event}\ndata: {text}\n\n".encode()

    def _with_ref(self, text: str, data: Data) -> str:
        url = self._object_url.replace("{{type}}", quote(data.type, safe=""))
        url = url.replace("{{id}}", quote(data.id, safe=""))
        return f'{text[:-1]},"ref":{json.dumps(url)}}}'


def position_of(mark: Mark, is_entry: bool) -> str:
    """The id that resumes after ``mark``: an entry's, also when that has left the log, or where the log began, its time."""
    return format_id(mark) if is_entry else str(max(mark.ms, 1))
