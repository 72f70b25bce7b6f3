"""A text in shared memory that outlives its writer."""

import struct
import zlib

# Number of the text, its length and its checksum.
_HEAD = struct.Struct("=QII")

# Reads of a page whose writer writes again during each of them.
_MOST_READS = 10


class Page:
    """Holds the newest text of one writer. Others read it, also after the writer was killed.

    The writer uses the two halves of ``memory`` in turn, so one of them is always whole. ``room``:
    the longest text in bytes.
    """

    def __init__(self, memory: memoryview) -> None:
        half = len(memory) // 2
        self._halves = memory[:half], memory[half : 2 * half]
        self.room = half - _HEAD.size

    def write(self, text: bytes) -> None:
        """Replace the text. Raises ValueError if it is too long."""
        if len(text) > self.room:
            raise ValueError(f"{len(text):,} bytes are more than the page holds ({self.room:,})")
        number = max(self._number(half) for half in self._halves) + 1
        half = self._halves[number % 2]
        half[_HEAD.size : _HEAD.size + len(text)] = text
        _HEAD.pack_into(half, 0, number, len(text), zlib.crc32(text))

    def read(self) -> bytes:
        """Return the newest whole text, empty if there is none.

        While no text is completed, one half at most is torn. So a read that sees the same heads
        before and after has the newest text.
        """
        for _ in range(_MOST_READS):
            heads = self._heads()
            whole = [found for half in self._halves if (found := self._text(half)) is not None]
            if self._heads() == heads:
                break
        return max(whole, default=(0, b""))[1]

    def _heads(self) -> list[bytes]:
        return [bytes(half[: _HEAD.size]) for half in self._halves]

    def _number(self, half: memoryview) -> int:
        found = self._text(half)
        return found[0] if found else 0

    def _text(self, half: memoryview) -> tuple[int, bytes] | None:
        number, length, checksum = _HEAD.unpack_from(half)
        text = bytes(half[_HEAD.size : _HEAD.size + length])
        return (number, text) if zlib.crc32(text) == checksum else None
