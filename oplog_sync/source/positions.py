"""Positions: what the options ``start`` and ``end`` say, and Spark's offsets. No I/O."""

from typing import Any, Literal, NamedTuple

from oplog_sync.errors import OptionError, SyncError
from oplog_sync.source.columns import milliseconds
from oplogd.errors import PositionError
from oplogd.model.event_id import EventId, Millis, Position, parse_position
from oplogd.model.operation import parse_timestamp

# Spark's offset, kept as JSON in the checkpoint. "id": the last operation of a batch. "offset" and
# "ms": of the same entry, for the lag; checkpoints of earlier releases have only "id".
# "first": the operation itself is still to be read. "start": nothing has been read yet.
# "from": earlier operations than this time in ms are not wanted; there was none yet.
Offset = dict[str, Any]


class Instant(NamedTuple):
    """A time in ms since 1970."""

    ms: int


Bound = Literal["now", "oldest", "everything"] | EventId | Instant


def bound(option: str, text: str) -> Bound:
    """Return what an option says. Raises OptionError.

    "everything": every object, then the operations.
    """
    if text in ("now", "oldest"):
        return "now" if text == "now" else "oldest"
    if text == "0":
        return "everything"
    try:
        position = parse_position(text)
    except PositionError:
        pass
    else:
        return Instant(position.ms) if isinstance(position, Millis) else position
    try:
        return Instant(max(0, milliseconds(parse_timestamp(text))))
    except ValueError:
        raise OptionError(
            f"option {option}: {text!r} is neither now, nor oldest, nor an event id of 24 digits, "
            "nor a time: RFC 3339 or milliseconds since 1970"
        ) from None


def position_of(found: Any) -> Position:
    """Return the position in an offset of a checkpoint. Raises SyncError for one of others."""
    try:
        return parse_position(found["id"])
    except (KeyError, PositionError, TypeError):
        raise SyncError(
            f"position {str(found)[:100]} is not of an oplog: was the checkpoint made by another "
            "source, or with the option topic?"
        ) from None


def offset(id_: str, *, first: bool = False) -> Offset:
    """Return Spark's offset of an id."""
    position = parse_position(id_)
    at = position.offset if isinstance(position, EventId) else 0
    found: Offset = {"id": id_, "offset": at, "ms": position.ms}
    return found | {"first": True} if first else found


def is_past(id_: str, other: str) -> bool:
    """Return whether an event id has the larger offset. It is later than any replication id."""
    position, earlier = parse_position(id_), parse_position(other)
    if isinstance(position, Millis):
        return False
    return isinstance(earlier, Millis) or position.offset > earlier.offset
