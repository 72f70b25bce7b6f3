"""The place of a worker: the process that has it now, and its history."""

import socket
from enum import Enum, auto

from oplog_kit.backoff import Backoff
from oplogd.listen import Listeners

# A worker that has served for so long starts again at once after its end.
_GOOD_SECONDS = 10.0
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 5.0

# A worker that ends so often before it serves ends the agent.
MAX_FAILURES = 3


class State(Enum):
    """``WAITS``: for its start. ``SHUT``: it takes nothing more. ``ENDED``: for good."""

    WAITS = auto()
    STARTS = auto()
    SERVES = auto()
    SHUT = auto()
    ENDED = auto()


class Place:
    """``listeners``: of each worker in this place. ``start_at``: when the next one may start."""

    def __init__(self, number: int, listeners: Listeners) -> None:
        self.number = number
        self.listeners = listeners
        self.state = State.WAITS
        self.pid = 0
        self.link: socket.socket | None = None
        self.start_at = 0.0
        self._served_at = 0.0
        self._failures = 0
        self._backoff = Backoff(_FIRST_PAUSE, _LAST_PAUSE)

    @property
    def lives(self) -> bool:
        return self.state in (State.STARTS, State.SERVES, State.SHUT)

    def began(self, pid: int, link: socket.socket) -> None:
        self.state, self.pid, self.link = State.STARTS, pid, link

    def serves(self, now: float) -> None:
        self.state, self._served_at, self._failures = State.SERVES, now, 0

    def put_off(self, now: float) -> None:
        """Let the next start wait."""
        self.state = State.WAITS
        self.start_at = now + self._backoff.pause
        self._backoff.grow()

    def has_died(self, now: float) -> bool:
        """Take note of an unexpected end. Return whether another worker shall start."""
        if self.state is State.STARTS:
            self._failures += 1
        elif now - self._served_at >= _GOOD_SECONDS:
            self._backoff.reset()
        self.put_off(now)
        return self._failures < MAX_FAILURES
