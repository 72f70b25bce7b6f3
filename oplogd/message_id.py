"""Ids of messages: 20 bytes that sort in the order of delivery. No I/O.

Big-endian: time of publication in ms since 1970 (8), sequence within that ms (2), and for messages
that were stored before their publication the time of writing (8) and the sequence in it (2). The
last two are zero for all others. Consumers see them as 40 hexadecimal digits.

A record of a transaction, as committed readers see it, has the time and sequence of the commit,
then its lsn plus one (8), then 1 if it is the last record of this commit in its topic, otherwise 0.
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
        """Return the lsn past which a reader at this position wants the records of a commit.

        -1: all of them. None: the reader has all of them.
        """
        return None if self.payload_sequence == _LAST and self.write_ms else self.write_ms - 1

    @property
    def is_inside(self) -> bool:
        """Whether more records of the same commit follow this id."""
        return self.write_ms > 0 and self.records_after is not None


# Value of ``payload_sequence`` in the id of a commit's last record.
_LAST = 1
_MAX_PART = (1 << 64) - 1


def record_id(ms: int, sequence: int, lsn: int, *, is_last: bool) -> MessageId:
    """Return the id of a record. ``ms`` and ``sequence``: of the commit."""
    return MessageId(ms, sequence, lsn + 1, _LAST if is_last else 0)


def end_id(ms: int, sequence: int) -> MessageId:
    """Return the position of a committed reader that has everything up to an entry, inclusive."""
    return MessageId(ms, sequence, _MAX_PART, _LAST)


_PARTS = ((0, 8), (8, 10), (10, 18), (18, 20))


def parse_message_id(text: str) -> MessageId:
    """Read the 40 digits of an id. Raises PositionError."""
    if not _ID.fullmatch(text):
        raise PositionError("a message id is 40 lower-case hexadecimal digits")
    return MessageId.of_bytes(bytes.fromhex(text))


def stamp(ms: int, sequence: int) -> int:
    """Return time and sequence as one number that orders the entries of a topic."""
    return ms << SEQUENCE_BITS | sequence


def unstamp(number: int) -> tuple[int, int]:
    """Return the time in ms and the sequence of a stamp."""
    return number >> SEQUENCE_BITS, number & MAX_SEQUENCE
