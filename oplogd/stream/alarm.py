"""Wakes waiting consumers a few at a time, so that a thousand of them do not keep the event loop from all else."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable

from oplogd.stream.ring import Waiter

_A_TURN = 64
"""Consumers woken in one turn of the event loop. All at once, an operation on its way from the socket to the store and back
waits behind a thousand writes at each of its steps (docs/decisions.md)."""


_TURN_SECONDS = 0.01
"""Consumers that each take long, since they catch up with a filter of their own, are woken fewer at a time."""


class Alarm:
    """First come, first woken."""

    def __init__(self) -> None:
        self._due: deque[Waiter] = deque()
        self._running = False
        self._a_turn = _A_TURN
        self._turned = 0.0

    def wake(self, waiters: Iterable[Waiter]) -> None:
        self._due.extend(waiters)
        if self._due and not self._running:
            self._running = True
            self._wake_some()

    def _turn(self) -> None:
        took_long = time.perf_counter() - self._turned > _TURN_SECONDS
        self._a_turn = max(1, self._a_turn // 2) if took_long else min(_A_TURN, self._a_turn * 2)
        self._wake_some()

    def _wake_some(self) -> None:
        for _ in range(min(self._a_turn, len(self._due))):
            self._due.popleft().wake()
        if self._due:
            self._turned = time.perf_counter()
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._running = False
