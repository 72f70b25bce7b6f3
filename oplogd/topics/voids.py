"""Rows of entries with nothing for some readers, so that polls need not read them. No I/O."""

from bisect import bisect_right
from typing import NamedTuple

# Most rows of a topic that are known; the longest ones stay.
MAX_ROWS = 32


class Void(NamedTuple):
    """The entries after the offset ``after`` up to ``upto`` have nothing for some readers."""

    after: int
    upto: int

    @property
    def length(self) -> int:
        return self.upto - self.after


class Voids(NamedTuple):
    """Rows that neither overlap nor touch, ascending."""

    rows: tuple[Void, ...] = ()

    def pass_over(self, offset: int) -> int:
        """Return the offset after which to read on."""
        index = bisect_right(self.rows, offset, key=lambda row: row.after) - 1
        return max(offset, self.rows[index].upto) if index >= 0 else offset

    def adding(self, row: Void) -> "Voids":
        """Return these rows and another one, united where they overlap or touch."""
        apart = [each for each in self.rows if each.upto < row.after or row.upto < each.after]
        together = [row, *(each for each in self.rows if each not in apart)]
        whole = Void(min(each.after for each in together), max(each.upto for each in together))
        rows = [*apart, whole]
        if len(rows) > MAX_ROWS:
            rows.remove(min(rows, key=lambda each: each.length))
        return Voids(tuple(sorted(rows)))


NO_VOIDS = Voids()
