"""Events of a consumer: operations, ``reset`` and ``live``. No I/O."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from oplogc.wire.errors import ProtocolError
from oplogc.wire.operation import EVENTS
from oplogc.wire.sse import Block

POSITION = re.compile(r"[0-9]{1,13}|[0-9a-f]{24}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Operation:
    """An object was inserted, updated or deleted.

    ``event_id`` is the position in the stream after it.
    """

    event_id: str
    event: Literal["insert", "update", "delete"]
    type: str
    id: str
    parents: tuple[str, ...]
    timestamp: datetime
    """When the object changed, as the producer says. In UTC."""
    ref: str | None = None
    """The object's URL, if the agent sends one."""
    txn: str | None = None
    """The transaction of the operation, if any."""
    lsn: int | None = None
    """Number of the operation in its transaction. It ascends in the stream."""
    of: int | None = None
    """Number of operations of this transaction in the oplog."""
    sequence: int = field(default=0, repr=False, compare=False)

    @property
    def key(self) -> str:
        """``type/id``, the object's name in the states."""
        return f"{self.type}/{self.id}"


@dataclass(frozen=True, slots=True)
class Reset:
    """A copy of all objects follows, as inserts, until ``Live``: forget objects known before."""

    event_id: str
    event: Literal["reset"] = "reset"
    sequence: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Live:
    """The copy, or the changes since the position, are complete. Operations follow."""

    event_id: str
    event: Literal["live"] = "live"
    sequence: int = field(default=0, repr=False, compare=False)


Event = Operation | Reset | Live


class Checkpoint(NamedTuple):
    """A position without an event: all operations of the filter up to here have been sent."""

    event_id: str
    sequence: int


def read(block: Block, sequence: int) -> Event | Checkpoint | None:
    """Return the event of a block, or its position if it has no event. None if it has neither.
    Raises ProtocolError.

    An event of a name unknown to this client only moves the position, see ``is_known``.
    """
    event_id, event, data, has_id = block
    if has_id and not POSITION.fullmatch(event_id):
        raise ProtocolError(
            f"the stream has an event {event[:40]!r} with the id {event_id[:40]!r}, "
            "which is no event id"
        )
    if event == "reset":
        return Reset(event_id, sequence=sequence)
    if event == "live":
        return Live(event_id, sequence=sequence)
    if event not in EVENTS:
        return Checkpoint(event_id, sequence) if has_id else None
    try:
        fields = json.loads(data)
        return Operation(
            event_id,
            event,  # type: ignore[arg-type]  # one of three, as just checked
            _text(fields["type"]),
            _text(fields["id"]),
            _parents(fields.get("parents")),
            _time(fields["timestamp"]),
            fields.get("ref"),
            *_transaction(fields),
            sequence,
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise ProtocolError(
            f"the operation {event_id} cannot be read ({reason}): is it an agent?"
        ) from None


def is_known(block: Block) -> bool:
    """Whether this client knows the block's event. A block with only an id is known, too."""
    return block.event in (*EVENTS, "reset", "live") or not (block.event or block.data)


def position_of(start: str | datetime) -> str:
    """Return a start as an event id: an id unchanged, a time as milliseconds since 1970.

    Raises ValueError.
    """
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError(
                "the time to start from needs a time zone, for example datetime.now(UTC)"
            )
        # 0 would ask for a full copy.
        return str(max(1, int(start.timestamp() * 1000)))
    if not POSITION.fullmatch(checked_text(start)):
        raise ValueError(
            f"{start!r} is no event id: up to 13 digits, or 24 lower-case hexadecimal digits"
        )
    return start


def checked_text(start: str) -> str:
    """Return a start, which must be text. Raise ValueError, for the number 0 for example."""
    if not isinstance(start, str):
        raise ValueError(f"start: give text such as '0', or a datetime, not {start!r}")
    return start


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("type and id must be strings")
    return value


def _parents(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(parent, str) for parent in value):
        raise TypeError("parents must be a list of strings")
    return tuple(value)


def _transaction(fields: dict[str, object]) -> tuple[str | None, int | None, int | None]:
    txn, lsn, of = (fields.get(name) for name in ("txn", "lsn", "of"))
    if isinstance(txn, str) and isinstance(lsn, int) and isinstance(of, int):
        return txn, lsn, of
    return None, None, None


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r} has no offset")
    return time.astimezone(UTC)
