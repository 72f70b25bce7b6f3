"""The kinds of entries in a topic, and the one rule for the readers that see them. No I/O."""

from enum import Enum, StrEnum

from oplogd.errors import MessageError
from oplogd.transaction import Isolation


class EntryKind(StrEnum):
    """The kind of an entry in a topic: its ``event``."""

    MESSAGE = "message"
    # A record of a transaction at the place at which it was written. Its data is a message.
    DEFERRED = "deferred"
    # The records of a transaction in this log are read here by committed readers. Its data is a
    # ``Marker``.
    COMMIT = "commit"
    # A transaction has ended without effect. Its data is a ``Marker``.
    ABORT = "abort"
    # A transaction has begun whose commit log this is. Its data is a ``Marker``.
    BEGIN = "begin"
    # Nobody may read it any more. Its data is empty.
    VOID = "void"


class Reading(Enum):
    """The way in which a reader reads an entry."""

    # The entry is a message for this reader.
    PASS = "pass"
    SKIP = "skip"
    # The reader gets the records of the transaction that committed here: ``TopicLog.expand``.
    EXPAND = "expand"


_READINGS: dict[Isolation, dict[str, Reading]] = {
    Isolation.READ_UNCOMMITTED: {
        EntryKind.MESSAGE: Reading.PASS,
        EntryKind.DEFERRED: Reading.PASS,
    },
    Isolation.READ_COMMITTED: {
        EntryKind.MESSAGE: Reading.PASS,
        EntryKind.COMMIT: Reading.EXPAND,
    },
}


def reading(kind: str, isolation: Isolation) -> Reading:
    """Return the way in which a reader reads an entry of this kind.

    Kinds that only a newer agent knows are skipped.
    """
    return _READINGS[isolation].get(kind, Reading.SKIP)


def isolation_of(given: object) -> Isolation:
    """Check an isolation as a reader gave it. Raises MessageError, which names ``isolation``."""
    for each in Isolation:
        if each == given:
            return each
    raise MessageError("isolation", f"must be {' or '.join(Isolation)}")
