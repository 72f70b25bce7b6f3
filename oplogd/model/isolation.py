"""The kinds of entries in a topic, and the one rule for the readers that see them. No I/O."""

from collections.abc import Mapping
from enum import Enum, StrEnum

from oplogd.errors import MessageError
from oplogd.model.transaction import Isolation


class EntryKind(StrEnum):
    """The kind of an entry in a topic: its ``event``."""

    MESSAGE = "message"
    # A message published under a pointer.
    DIRECT = "direct"
    # The messages stored under a pointer are read here. Its data is a ``Marker``.
    PUBLISH = "publish"
    # A record of a transaction at the place at which it was written. Its data is a message.
    DEFERRED = "deferred"
    # Committed readers read the records of a transaction here. Its data is a ``Marker``. Of a
    # pointer: its owner has reported a commit.
    COMMIT = "commit"
    # A transaction has ended without effect, or a pointer was aborted or timed out. Its data is a
    # ``Marker``.
    ABORT = "abort"
    # A message of a timed out pointer, at the place of its owner's late report of a commit. The
    # others have read it at its first place.
    LATE = "late"
    # A transaction has begun whose commit log this is. Its data is a ``Marker``.
    BEGIN = "begin"
    # It is unreadable. Its data is empty, or a ``Voided``: the entries voided by a rollback.
    VOID = "void"


class Reading(Enum):
    """The way in which a reader reads an entry."""

    # The entry is a message for this reader.
    PASS = "pass"
    SKIP = "skip"
    # The reader gets the transaction's records or the stored messages: ``TopicLog.expand``.
    EXPAND = "expand"
    # The reader does not go past this entry until its pointer is decided.
    HOLD = "hold"


_READINGS: dict[Isolation, dict[str, Reading]] = {
    Isolation.READ_UNCOMMITTED: {
        EntryKind.MESSAGE: Reading.PASS,
        EntryKind.DIRECT: Reading.PASS,
        EntryKind.PUBLISH: Reading.EXPAND,
        EntryKind.DEFERRED: Reading.PASS,
    },
    Isolation.READ_COMMITTED: {
        EntryKind.MESSAGE: Reading.PASS,
        EntryKind.DIRECT: Reading.HOLD,
        EntryKind.PUBLISH: Reading.HOLD,
        EntryKind.COMMIT: Reading.EXPAND,
        EntryKind.LATE: Reading.PASS,
    },
}

_VISIBLE: Mapping[str, Reading] = {
    EntryKind.DIRECT: Reading.PASS,
    EntryKind.PUBLISH: Reading.EXPAND,
}


def reading(kind: str, isolation: Isolation, verdict: Reading = Reading.HOLD) -> Reading:
    """Return the way in which a reader reads an entry of this kind. Unknown kinds are skipped.

    ``verdict``: of a committed reader about the pointer of a DIRECT or PUBLISH entry.
    """
    how = _READINGS[isolation].get(kind, Reading.SKIP)
    if how is not Reading.HOLD:
        return how
    return _VISIBLE[kind] if verdict is Reading.PASS else verdict


# Parameters required from a reader.
ISOLATIONS = f"must be {' or '.join(Isolation)}"


def isolation_of(given: object) -> Isolation:
    """Check an isolation as a reader gave it. Raises MessageError, which names ``isolation``."""
    for each in Isolation:
        if each == given:
            return each
    raise MessageError("isolation", ISOLATIONS)
