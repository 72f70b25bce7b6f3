"""Wakes waiting consumers a few at a time, so that a thousand of them do not keep the event loop from all else."""

import asyncio
from collections import deque
from collections.abc import Iterable

from oplogd.stream.ring import Waiter

_A_TURN = 64
"""Consumers woken in one turn of the event loop. All at once, an operation on its way from the socket to the store and back
waits behind a thousand writes at each of its steps (docs/decisions.md)."""


class Alarm:
    """First come, first woken."""

    def __init__(self) -> None:
        self._due: deque[Waiter] = deque()
        self._running = False

    def wake(self, waiters: Iterable[Waiter]) -> None:
        self._due.extend(waiters)
        if self._due and not self._running:
            self._running = True
            self._turn()

    def _turn(self) -> None:
        for _ in range(min(_A_TURN, len(self._due))):
            self._due.popleft().wake()
        if self._due:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._running = False
