"""Walks over the bytes of a body in Avro, and checks them. No I/O."""

from collections.abc import Iterator
from typing import NamedTuple

from oplogd.errors import MessageError

# A number has seven bits in each byte, and 64 in total.
_MAX_NUMBER_BYTES = 10


class ArrayBlock(NamedTuple):
    """A block of an array. ``items``: their number. ``end``: index of its end if announced."""

    items: int
    end: int | None


class AvroBytes:
    """Moves over one value after the other. ``at``: index of the next byte.

    Methods take the field for errors, and raise MessageError.
    """

    def __init__(self, raw: bytes | bytearray) -> None:
        self.at = 0
        self._raw = raw

    def number(self, field: str) -> int:
        """Return the next int or long."""
        number = 0
        for index, byte in enumerate(self._raw[self.at : self.at + _MAX_NUMBER_BYTES]):
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                if number >> 64:
                    break
                self.at += index + 1
                return number >> 1 ^ -(number & 1)
        if self.at + _MAX_NUMBER_BYTES > len(self._raw):
            raise MessageError(field, "the Avro body ends here")
        raise MessageError(field, "is not Avro: a number has more than 64 bits")

    def branch(self, field: str, branches: int) -> int:
        """Return the index of the branch of a union."""
        index = self.number(field)
        if not 0 <= index < branches:
            raise MessageError(field, f"is not Avro: its union has no branch {index}")
        return index

    def skip_boolean(self, field: str) -> None:
        if self.at == len(self._raw):
            raise MessageError(field, "the Avro body ends here")
        if self._raw[self.at] > 1:
            raise MessageError(field, "is not Avro: a boolean is 0 or 1")
        self.at += 1

    def skip_bytes(self, field: str) -> int:
        """Pass over bytes. Return their number."""
        size = self._size(field)
        self.at += size
        return size

    def block(self, field: str) -> ArrayBlock | None:
        """Return the next block of an array, None after the last one. Items are not empty."""
        count, end = self.number(field), None
        if count < 0:
            count, size = -count, self._size(field)
            end = self.at + size
        if count > self._left:
            raise MessageError(field, f"announces {count:,} items, but {self._left:,} bytes follow")
        return ArrayBlock(count, end) if count else None

    def end_block(self, block: ArrayBlock, field: str) -> None:
        if block.end not in (None, self.at):
            raise MessageError(field, "is not Avro: a block has another size than announced")

    def items(self, field: str) -> Iterator[str]:
        """Yield the place of each item of the last array. The caller passes over the item."""
        total = 0
        while block := self.block(field):
            first, total = total, total + block.items
            for index in range(first, total):
                yield f"{field}[{index}]"
            self.end_block(block, field)
        self.end()

    def end(self) -> None:
        if self._left:
            raise MessageError("body", f"has bytes after the end of its Avro: {self._left:,}")

    @property
    def _left(self) -> int:
        return len(self._raw) - self.at

    def _size(self, field: str) -> int:
        size = self.number(field)
        if not 0 <= size <= self._left:
            raise MessageError(field, f"announces {size:,} bytes, but {self._left:,} follow")
        return size
