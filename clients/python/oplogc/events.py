"""What a consumer gets: operations, ``reset`` and ``live``. No I/O."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from oplogc.errors import ProtocolError
from oplogc.sse import Block

_EVENT_ID = re.compile(r"[0-9]{1,13}|[0-9a-f]{24}", re.ASCII)
_OPERATIONS = ("insert", "update", "delete")


@dataclass(frozen=True, slots=True)
class Operation:
    """An object was inserted, updated or deleted. ``event_id`` is the position in the stream after it."""

    event_id: str
    event: Literal["insert", "update", "delete"]
    type: str
    id: str
    parents: tuple[str, ...]
    timestamp: datetime
    """When the object changed, as the producer says; in UTC."""
    ref: str | None = None
    """The object's URL, where the agent is set up to send one."""
    sequence: int = field(default=0, repr=False, compare=False)

    @property
    def key(self) -> str:
        """``type/id``, the object's name in the states."""
        return f"{self.type}/{self.id}"


@dataclass(frozen=True, slots=True)
class Reset:
    """A full copy follows, the objects as inserts, up to ``Live``: forget what is not in it."""

    event_id: str
    event: Literal["reset"] = "reset"
    sequence: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Live:
    """The copy, or what changed while away, is complete; operations follow as they happen."""

    event_id: str
    event: Literal["live"] = "live"
    sequence: int = field(default=0, repr=False, compare=False)


Event = Operation | Reset | Live


class Checkpoint(NamedTuple):
    """A position without an event: everything that passes the filter up to here has been sent."""

    event_id: str
    sequence: int


def read(block: Block, sequence: int) -> Event | Checkpoint:
    """What a block says. An event of a name unknown to this client only moves the position. Raises ProtocolError."""
    event_id, event, data = block
    if not _EVENT_ID.fullmatch(event_id):
        raise ProtocolError(f"the stream has an event {event!r} with the id {event_id!r}")
    if event == "reset":
        return Reset(event_id, sequence=sequence)
    if event == "live":
        return Live(event_id, sequence=sequence)
    if event not in _OPERATIONS:
        return Checkpoint(event_id, sequence)
    try:
        fields = json.loads(data)
        return Operation(
            event_id,
            event,  # type: ignore[arg-type]  # one of three, as just checked
            fields["type"],
            fields["id"],
            tuple(fields.get("parents") or ()),
            _time(fields["timestamp"]),
            fields.get("ref"),
            sequence,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"the operation {event_id} cannot be read: {error!r}") from None


def position_of(start: str | datetime) -> str:
    """A start as an event id: an id as it is, a time in milliseconds since 1970. Raises ValueError."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError("the time to start from needs a time zone, for example datetime.now(UTC)")
        # 0 would ask for a full copy.
        return str(max(1, int(start.timestamp() * 1000)))
    if not _EVENT_ID.fullmatch(start):
        raise ValueError(f"{start!r} is no event id: up to 13 digits, or 24 lower-case hexadecimal digits")
    return start


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r} has no offset")
    return time.astimezone(UTC)
