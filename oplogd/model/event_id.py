"""Event ids: marks of the log in a form that looks and sorts like an ObjectId.

Twelve bytes, big-endian, in hexadecimal: seconds since 1970 (4), milliseconds (2), offset (6).
A position in the stream is such an id or, in replication, milliseconds since 1970.
"""

import re
from typing import NamedTuple

from oplogd.errors import PositionError

MAX_OFFSET = (1 << 48) - 1
MAX_MS = ((1 << 32) - 1) * 1000 + 999

_POSITION = re.compile(r"[0-9]{1,13}|[0-9a-f]{24}")


class Mark(NamedTuple):
    """An offset (0: before the first entry) and the time of its entry in ms since 1970.

    ``sequence``: in topics the number of the entry within its ms; in the oplog 0.
    """

    offset: int
    ms: int
    sequence: int = 0


class EventId(NamedTuple):
    """The parts of a 24-digit id. ``millis`` over 999: an ObjectId of no log of ours."""

    seconds: int
    millis: int
    offset: int

    @property
    def ms(self) -> int:
        return self.seconds * 1000 + self.millis


class Millis(NamedTuple):
    """A replication id: milliseconds since 1970 of an object's state.

    ``chosen``: a person asks for this time. No log sent it as an id.
    """

    ms: int
    chosen: bool = False


Position = EventId | Millis


def prefix(ms: int) -> str:
    """Return the first 12 digits of the ids of time ``ms``. Twelve digits of the offset follow."""
    seconds, millis = divmod(ms, 1000)
    return f"{seconds:08x}{millis:04x}"


def format_id(mark: Mark) -> str:
    return f"{prefix(mark.ms)}{mark.offset:012x}"


def position_at(mark: Mark, first_offset: int) -> str:
    """Return the position of a mark: its id, at the beginning of a log a replication id.

    ``first_offset``: of the log. Smaller offsets have no id.
    """
    return format_id(mark) if mark.offset >= first_offset else str(max(mark.ms, 1))


def parse_position(text: str) -> Position:
    """Read a position as a consumer sends it. Raises PositionError."""
    if not _POSITION.fullmatch(text):
        raise PositionError(
            "an event id is up to 13 decimal digits (milliseconds since 1970)"
            " or 24 lower-case hexadecimal digits"
        )
    if len(text) <= 13:
        return Millis(int(text))
    return EventId(int(text[:8], 16), int(text[8:12], 16), int(text[12:], 16))
