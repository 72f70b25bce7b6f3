"""Wakes waiting consumers a few at a time, so that a thousand of them do not keep the event loop from all else."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable

from oplogd.stream.ring import Waiter

_A_TURN = 64
"""Consumers woken in one turn of the event loop. All at once, an operation on its way from the socket to the store and back
waits behind a thousand writes at each of its steps (docs/decisions.md)."""


_TURN_SECONDS = 0.01
"""Consumers that each take long, since they catch up with a filter of their own, are woken fewer at a time."""


class Alarm:
    """First come, first woken; a consumer that is due already is not noted again."""

    def __init__(self) -> None:
        self._due: OrderedDict[Waiter, None] = OrderedDict()
        self._running = False
        self._a_turn = _A_TURN
        self._began = 0.0

    def wake(self, waiters: Iterable[Waiter]) -> None:
        self._due.update(dict.fromkeys(waiters))
        if self._due and not self._running:
            self._running = True
            self._wake_some()

    def _begin(self) -> None:
        self._began = time.perf_counter()

    def _turn(self) -> None:
        took_long = time.perf_counter() - self._began > _TURN_SECONDS
        self._a_turn = max(1, self._a_turn // 2) if took_long else min(_A_TURN, self._a_turn * 2)
        self._wake_some()

    def _wake_some(self) -> None:
        """Wake a turn's consumers. What they do is timed between ``_begin`` and ``_turn``, without the loop's other work."""
        loop = asyncio.get_running_loop()
        if len(self._due) > self._a_turn:
            loop.call_soon(self._begin)
        for _ in range(min(self._a_turn, len(self._due))):
            self._due.popitem(last=False)[0].wake()
        if self._due:
            loop.call_soon(self._turn)
        else:
            self._running = False
