"""Ids of messages: 20 bytes, sorted in the order of delivery. No I/O.

Big-endian: time of publication in ms since 1970 (8), sequence within this ms (2), and for messages
stored before their publication the time of writing (8) and its sequence (2), otherwise zeros.
Consumers see them as 40 hexadecimal digits.

For committed readers, a record of a transaction has the time and sequence of the commit, then its
lsn plus one (8), then 1 for the last record of this commit in its topic, otherwise 0.

Sequences of writing have 15 bits. The highest bit is set for the last message of a PUBLISH entry.
"""

import re
from typing import NamedTuple, Self

from oplogd.errors import PositionError

MAX_SEQUENCE = 0xFFFF
# Bits of the sequence in a stamp.
SEQUENCE_BITS = 16
MESSAGE_ID_BYTES = 20

_ID = re.compile(r"[0-9a-f]{40}")


class MessageId(NamedTuple):
    """Times are ms since 1970, sequences 0 to MAX_SEQUENCE."""

    ms: int
    sequence: int
    write_ms: int = 0
    payload_sequence: int = 0

    @classmethod
    def of_bytes(cls, raw: bytes) -> Self:
        """Read the 20 bytes of an id. Raises PositionError."""
        if len(raw) != MESSAGE_ID_BYTES:
            raise PositionError(f"a message id has {MESSAGE_ID_BYTES} bytes, not {len(raw)}")
        return cls(*(int.from_bytes(raw[a:b], "big") for a, b in _PARTS))

    def to_bytes(self) -> bytes:
        return b"".join(
            part.to_bytes(end - start, "big")
            for part, (start, end) in zip(self, _PARTS, strict=True)
        )

    def __str__(self) -> str:
        """Return 40 hexadecimal digits."""
        return f"{self.ms:016x}{self.sequence:04x}{self.write_ms:016x}{self.payload_sequence:04x}"

    @property
    def records_after(self) -> int | None:
        """Return the number of the entry's last record that a reader at this position has.

        An lsn at a COMMIT entry, a write stamp at a PUBLISH entry. -1: none; None: all of them.
        """
        if self.write_ms >= _FIRST_WRITE_MS:
            if self.write_ms == _MAX_PART or self.payload_sequence & _LAST_STORED:
                return None
            return stamp(self.write_ms, self.payload_sequence)
        return None if self.payload_sequence == _LAST and self.write_ms else self.write_ms - 1

    @property
    def is_stored(self) -> bool:
        """Whether this is the id of a message stored before its publication."""
        return _FIRST_WRITE_MS <= self.write_ms < _MAX_PART

    @property
    def is_inside(self) -> bool:
        """Whether more records of the same entry follow this id."""
        return self.write_ms > 0 and self.records_after is not None


# Value of ``payload_sequence`` in the id of a commit's last record.
_LAST = 1
# Set in ``payload_sequence`` in the id of the last message of a PUBLISH entry.
_LAST_STORED = 1 << 15
# No lsn is that large, and no message was stored before: a day in 2004.
_FIRST_WRITE_MS = 1 << 40
_MAX_PART = (1 << 64) - 1


def record_id(ms: int, sequence: int, lsn: int, *, is_last: bool) -> MessageId:
    """Return the id of a record. ``ms`` and ``sequence``: of the commit."""
    return MessageId(ms, sequence, lsn + 1, _LAST if is_last else 0)


def stored_id(ms: int, sequence: int, write_stamp: int, *, is_last: bool) -> MessageId:
    """Return the id of a stored message. ``ms`` and ``sequence``: of the PUBLISH entry."""
    write_ms, write_sequence = unstamp(write_stamp)
    return MessageId(ms, sequence, write_ms, write_sequence | (_LAST_STORED if is_last else 0))


def before_record(id_: MessageId) -> MessageId:
    """Return the position just before the record, or the stored message, with this id."""
    if not id_.is_stored:
        return id_._replace(write_ms=id_.write_ms - 1, payload_sequence=0)
    sequence = id_.payload_sequence & _MAX_WRITE_SEQUENCE
    if sequence:
        return id_._replace(payload_sequence=sequence - 1)
    return id_._replace(write_ms=id_.write_ms - 1, payload_sequence=_MAX_WRITE_SEQUENCE)


def next_write_stamp(last: int, now_ms: int) -> int:
    """Return the stamp of the next stored message. ``last``: of the one before, 0: none."""
    is_full = last & _MAX_WRITE_SEQUENCE == _MAX_WRITE_SEQUENCE
    following = stamp((last >> SEQUENCE_BITS) + 1, 0) if is_full else last + 1
    return max(stamp(max(now_ms, _FIRST_WRITE_MS), 0), following)


def end_id(ms: int, sequence: int) -> MessageId:
    """Return the position of a reader with everything up to an entry, inclusive."""
    return MessageId(ms, sequence, _MAX_PART, _LAST)


# The largest sequence of a stored message.
_MAX_WRITE_SEQUENCE = _LAST_STORED - 1

_PARTS = ((0, 8), (8, 10), (10, 18), (18, 20))


def parse_message_id(text: str) -> MessageId:
    """Read the 40 digits of an id. Raises PositionError."""
    if not _ID.fullmatch(text):
        raise PositionError("a message id is 40 lower-case hexadecimal digits")
    return MessageId.of_bytes(bytes.fromhex(text))


def stamp(ms: int, sequence: int) -> int:
    """Return time and sequence as one number, in the order of the topic's entries."""
    return ms << SEQUENCE_BITS | sequence


def unstamp(number: int) -> tuple[int, int]:
    """Return the time in ms and the sequence of a stamp."""
    return number >> SEQUENCE_BITS, number & MAX_SEQUENCE
