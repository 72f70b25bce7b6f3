"""What the workers know of the logs of topics, shared before a request is answered."""

from oplogd.shared.memory import Rows


class Heads:
    """The logs as a worker without others knows them: it has nothing to share."""

    @property
    def changes(self) -> int:
        """A number that grows with each change and end of a topic."""
        return 0

    def newest(self, log: int) -> int:
        """Return the newest offset of a log that was shown to a client; 0: none is known."""
        return 0

    def is_followed(self, log: int) -> bool:
        """Return whether another worker keeps the newest entries of a log in memory."""
        return False

    def show(self, log: int, offset: int) -> None:
        """Note the offset of a durable entry before a client learns of it."""

    def lower(self, log: int, offset: int) -> None:
        """Note that a log ends here: an older copy has taken its place."""

    def change(self) -> None:
        """Note a changed or deleted topic before a client learns of it."""

    def follow(self, log: int, by: int) -> None:
        """Note that this worker begins (1) or ends (-1) to keep the newest entries of a log."""


class SharedHeads(Heads):
    """The logs as worker ``number`` knows them. Only its event loop calls the methods.

    A log has its number in its lowest ``bits``. A later log with the same number has larger
    offsets.
    """

    def __init__(self, shared: "HeadTables", number: int) -> None:
        self._number = number
        self._mask = shared.mask
        self._heads = shared.heads.rows
        self._followed = shared.followed.rows
        self._changes = shared.changes.rows
        self._all_changes = shared.all_changes
        # The worker before this one in its place may have been killed.
        shared.followed.clear(number)

    @property
    def changes(self) -> int:
        return self._all_changes()

    def newest(self, log: int) -> int:
        number = log & self._mask
        return max([row[number] for row in self._heads])

    def is_followed(self, log: int) -> bool:
        number = log & self._mask
        return any(row[number] for row in self._followed)

    def show(self, log: int, offset: int) -> None:
        row, number = self._heads[self._number], log & self._mask
        if offset > row[number]:
            row[number] = offset

    def lower(self, log: int, offset: int) -> None:
        number = log & self._mask
        for row in self._heads:
            row[number] = min(row[number], offset)

    def change(self) -> None:
        self._changes[self._number][0] += 1

    def follow(self, log: int, by: int) -> None:
        self._followed[self._number][log & self._mask] += by


class HeadTables:
    """The memory of the heads of ``count`` workers. Most of it is never touched."""

    def __init__(self, count: int, bits: int) -> None:
        self.mask = (1 << bits) - 1
        self.heads = Rows(count, 1 << bits)
        self.followed = Rows(count, 1 << bits, "B")
        self.changes = Rows(count, 1)

    def all_changes(self) -> int:
        """Return a number that grows with each change and end of a topic."""
        return sum(row[0] for row in self.changes.rows)
