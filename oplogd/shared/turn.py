"""The turn to write: workers that wait get it in the order in which they came.

The lock excludes, and the kernel frees it when its holder ends. The order is kept beside it: each
worker that waits shows since when, and rings the bell of the one that waits longest when it has
written. A worker that is suspended while it waits holds up the others once for PATIENCE_SECONDS.
One that is only slow changes its mark by a nanosecond whenever it wakes, so it is waited for again.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType

from oplogd.shared.bells import Bells
from oplogd.shared.memory import Rows
from oplogd.shared.record_lock import RecordLock

# How long a waiting worker may leave a free turn unused. Then the next one may take it. Also the
# time between two attempts of one that is not woken: the holder may have been killed.
PATIENCE_SECONDS = 0.01

# Places in the row of a worker: since when it waits, 0 if it does not, and when it last gave up
# the turn. By the monotonic clock, in ns.
_SINCE, _FREED = 0, 1


class Turn:
    """The turn as one worker takes it, a context manager. Its threads take it one after the other.

    ``seconds``: longest wait. ``observe`` gets the seconds of each wait that ended with the turn.
    ``since``: when the last wait began, in ns.
    """

    def __init__(self, turns: "Turns", number: int, seconds: float) -> None:
        self.observe: Callable[[float], None] = lambda seconds: None
        self._turns = turns
        self._number = number
        self._seconds = seconds
        self.since = 0
        self._rows = turns.memory.rows
        self._mine = self._rows[number]
        # Waits of others that left a free turn unused: they do not hold up this worker again.
        self._passed = [0] * len(self._rows)
        self._is_coming = False

    async def coming(self) -> None:
        """Wait in the event loop until the turn would be this worker's at once.

        What comes meanwhile can be written in the same turn. The worker keeps its place in the
        order until it takes the turn. Does not wait beside another writer of this process.
        """
        if self._is_coming or self._turns.here.locked():
            return
        self._is_coming = True
        self._mine[_SINCE] = time.monotonic_ns()
        until = time.monotonic() + self._seconds / 2
        try:
            while not self._turns.here.locked() and time.monotonic() < until:
                if (not self._before(self._mine[_SINCE]) or self._is_unused()) and self._try():
                    return
                await self._turns.bells.each[self._number].rung(PATIENCE_SECONDS)
                self._show()
        finally:
            self._is_coming = False

    def __enter__(self) -> None:
        """Wait for the turn. Raises TimeoutError."""
        if not self._turns.here.acquire(timeout=self._seconds):
            raise TimeoutError
        since = self._mine[_SINCE]  # of ``coming``
        if not since or time.monotonic_ns() - since > self._seconds * 1e9:
            since = self._mine[_SINCE] = time.monotonic_ns()
        self.since = since
        try:
            while True:
                before = self._before(since)
                if (not before or self._is_unused()) and self._turns.lock.take():
                    break
                if time.monotonic_ns() - since >= self._seconds * 1e9:
                    raise TimeoutError
                self._turns.bells.each[self._number].wait(PATIENCE_SECONDS)
                since = self._show()
        except BaseException:
            self._mine[_SINCE] = 0
            self._turns.here.release()
            raise
        self._mine[_SINCE] = 0
        for mark, number in before:
            self._passed[number] = mark
        self.observe((time.monotonic_ns() - since) / 1e9)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mine[_FREED] = time.monotonic_ns()
        self._turns.lock.free()
        waiting = [(row[_SINCE], number) for number, row in enumerate(self._rows) if row[_SINCE]]
        for since, number in sorted(waiting):
            self._turns.bells.each[number].ring()
            if since != self._passed[number]:
                break
        self._turns.here.release()

    def _show(self) -> int:
        """Show that this worker still waits: one that is slow, not suspended, keeps its place."""
        since = self._mine[_SINCE] or time.monotonic_ns()  # another writer may have had the turn
        self._mine[_SINCE] = since - 1
        return since - 1

    def _try(self) -> bool:
        """Return whether the lock is free."""
        if self._turns.lock.take():
            self._turns.lock.free()
            return True
        return False

    def _is_unused(self) -> bool:
        """Return whether the worker whose turn it is has had PATIENCE_SECONDS to take it."""
        freed = max(row[_FREED] for row in self._rows)
        return time.monotonic_ns() - freed >= PATIENCE_SECONDS * 1e9

    def _before(self, since: int) -> list[tuple[int, int]]:
        """Return since when others wait for longer that have not left a turn unused, and who."""
        return [
            (before, number)
            for number, row in enumerate(self._rows)
            if (before := row[_SINCE])
            and (before, number) < (since, self._number)
            and before != self._passed[number]
        ]


class Turns:
    """What the workers share of their turn.

    ``here``: also two workers in one process exclude each other.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self.lock = RecordLock()
        self.here = threading.Lock()
        self.bells = Bells(count)
        self.memory = Rows(count, 2)
        self.each = [Turn(self, number, seconds) for number in range(count)]
