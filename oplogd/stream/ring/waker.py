"""Wakes waiting consumers a few at a time, so that thousands do not block the event loop."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from oplogd.stream.ring.postings import Waiter

# Consumers woken in one turn of the event loop. Behind more of them, operations would wait too long
# (docs/internals/decisions/0010).
_MOST_PER_TURN = 64

# If the consumers of a turn take longer than this, fewer are woken in the next turn.
_TURN_SECONDS = 0.01


class Waker:
    """Wakes in the order of the calls. A consumer due already keeps its turn."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._due: OrderedDict[Waiter, None] = OrderedDict()
        self._running = False
        self._per_turn = _MOST_PER_TURN
        self._began = 0.0

    def wake(self, waiters: Iterable[Waiter]) -> None:
        self._due.update(dict.fromkeys(waiters))
        if self._due and not self._running:
            self._running = True
            self._wake_some()

    def _begin(self) -> None:
        self._began = self._clock()

    def _turn(self) -> None:
        took_long = self._clock() - self._began > _TURN_SECONDS
        self._per_turn = (
            max(1, self._per_turn // 2) if took_long else min(_MOST_PER_TURN, self._per_turn * 2)
        )
        self._wake_some()

    def _wake_some(self) -> None:
        """Wake the consumers of a turn. Their work between ``_begin`` and ``_turn`` is timed."""
        loop = asyncio.get_running_loop()
        if len(self._due) > self._per_turn:
            loop.call_soon(self._begin)
        for _ in range(min(self._per_turn, len(self._due))):
            self._due.popitem(last=False)[0].wake()
        if self._due:
            loop.call_soon(self._turn)
        else:
            self._running = False
