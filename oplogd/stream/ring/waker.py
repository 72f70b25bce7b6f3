"""Wakes waiting consumers a few at a time, so that thousands do not block the event loop."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from oplogd.stream.ring.postings import Waiter

# Consumers woken in one turn of the event loop. Behind more of them, operations would wait too long
# (docs/internals/decisions/0010).
_MOST_PER_TURN = 64

# A turn that has taken longer than this ends before.
_TURN_SECONDS = 0.01


class Waker:
    """Wakes in the order of the calls. A consumer due already keeps its turn."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._due: OrderedDict[Waiter, None] = OrderedDict()
        self._running = False

    def wake(self, waiters: Iterable[Waiter]) -> None:
        """Wake consumers soon, not within this call."""
        self._due.update(dict.fromkeys(waiters))
        if self._due and not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        due, clock = self._due, self._clock
        until = clock() + _TURN_SECONDS
        try:
            for _ in range(min(_MOST_PER_TURN, len(due))):
                due.popitem(last=False)[0].wake()
                if clock() > until:
                    break
        finally:
            self._running = bool(due)
            if due:
                asyncio.get_running_loop().call_soon(self._turn)
