"""Event ids: where an operation stands in the log, written so that it looks and sorts like an ObjectId.

Twelve bytes, big-endian, in hexadecimal: seconds since 1970 (4), milliseconds (2), offset (6). A position in the stream
is such an id or, in replication, milliseconds since 1970.
"""

import re
from typing import NamedTuple

from oplogd.errors import PositionError

MAX_OFFSET = (1 << 48) - 1
MAX_MS = ((1 << 32) - 1) * 1000 + 999

_POSITION = re.compile(r"[0-9]{1,13}|[0-9a-f]{24}")


class Mark(NamedTuple):
    """A place in the log: an offset (0 before the first entry) and its entry's time in ms since 1970."""

    offset: int
    ms: int


class EventId(NamedTuple):
    """A 24-digit id taken apart. ``millis`` over 999 shows an ObjectId that is not of our making."""

    seconds: int
    millis: int
    offset: int

    @property
    def ms(self) -> int:
        return self.seconds * 1000 + self.millis


class Millis(NamedTuple):
    """A replication id: milliseconds since 1970 of an object's state.

    ``chosen``: no id that a log handed out, but a time that a person asks for.
    """

    ms: int
    chosen: bool = False


Position = EventId | Millis


def prefix(ms: int) -> str:
    """The first 12 digits of the ids of time ``ms``; the offset in 12 digits follows."""
    seconds, millis = divmod(ms, 1000)
    return f"{seconds:08x}{millis:04x}"


def format_id(mark: Mark) -> str:
    return f"{prefix(mark.ms)}{mark.offset:012x}"


def parse_position(text: str) -> Position:
    """Read an id as a consumer sends it. Raises PositionError."""
    if not _POSITION.fullmatch(text):
        raise PositionError(
            "an event id is up to 13 decimal digits (milliseconds since 1970) or 24 lower-case hexadecimal digits"
        )
    if len(text) <= 13:
        return Millis(int(text))
    return EventId(int(text[:8], 16), int(text[8:12], 16), int(text[12:], 16))
