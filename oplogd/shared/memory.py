"""Numbers in memory that processes share."""

import mmap
from typing import Literal


class Rows:
    """A row of ``length`` numbers for each of ``count`` workers, all 0 at first.

    ``code``: ``q`` for 8 bytes, ``B`` for one byte. Only its own worker writes to a row; all read
    all rows. One number is written and read at once. Memory never written to costs nothing.
    """

    def __init__(self, count: int, length: int, code: Literal["q", "B"] = "q") -> None:
        size = length * (8 if code == "q" else 1)
        self._maps = [mmap.mmap(-1, size) for _ in range(count)]
        self.rows = [memoryview(each).cast(code) for each in self._maps]

    def clear(self, number: int) -> None:
        """Set a row to 0, and give its memory back."""
        self._maps[number].madvise(mmap.MADV_REMOVE)
