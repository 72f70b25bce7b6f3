"""Ids of messages: 20 bytes that sort in the order of delivery. No I/O.

Big-endian: time of publication in ms since 1970 (8), sequence within that ms (2), and for messages
that were stored before their publication the time of writing (8) and the sequence in it (2). The
last two are zero for all others. Consumers see them as 40 hexadecimal digits.
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
