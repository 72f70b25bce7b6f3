"""The limits of guesses for all workers of an agent together, exactly as for one process.

Each worker has a copy of one ``AttemptLimiter``. An attempt is judged and counted in one turn, so
no other worker judges between the two.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from oplogd.host.senders import units_of
from oplogd.shared.journal import Copy, Journal
from oplogd.web.access.guesses.attempts import AttemptLimiter, LimiterState, MemoryBounds


class Limiter(Protocol):
    """Limits the guesses of one password."""

    def judge(self, address: str, attempt: bytes, *, is_right: bool) -> float:
        """Count an attempt that may be checked now, and return 0.

        Otherwise return the seconds until it may be checked, and count nothing.
        """

    def wait_seconds(self, address: str, attempt: bytes) -> float:
        """Return the seconds until an attempt may be checked. Count nothing."""


class _Counted(NamedTuple):
    """A counted attempt. ``now``: in seconds of the monotonic clock, one for all processes."""

    own: str
    network: str
    attempt: bytes
    now: float
    is_right: bool


class _State:
    """The limiter as the journal sees it."""

    def __init__(self, limiter: AttemptLimiter) -> None:
        self._limiter = limiter

    def load(self, snapshot: bytes) -> None:
        self._limiter.state = msgspec.msgpack.decode(snapshot, type=LimiterState)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self._limiter.state)

    def shrink(self) -> None:
        """Forget the wrong attempts of single addresses: they count again when repeated."""
        self._limiter.forget_attempts_of_addresses()

    def apply(self, change: bytes) -> None:
        own, network, attempt, now, is_right = msgspec.msgpack.decode(change, type=_Counted)
        self._limiter.count(own, network, attempt, now, is_right=is_right)


class SharedAttempts:
    """The limiter of one password in one worker. ``key``: the same secret in all workers."""

    def __init__(
        self,
        journal: Journal,
        key: bytes,
        clock: Callable[[], float],
        bounds: MemoryBounds | None = None,
    ) -> None:
        self._clock = clock
        self._limiter = AttemptLimiter(clock, bounds, key)
        self._copy = Copy(journal, _State(self._limiter))

    def judge(self, address: str, attempt: bytes, *, is_right: bool) -> float:
        limiter, copy = self._limiter, self._copy
        own, network = units_of(address)
        # Nothing to write, so a turn would give no more than this look.
        if is_right and copy.is_current and limiter.is_freshly_known(own):
            return limiter.wait_of(own, network, attempt, self._clock())
        with copy.turn():
            now = self._clock()
            wait = limiter.wait_of(own, network, attempt, now)
            if not wait and not (is_right and limiter.is_freshly_known(own)):
                counted = _Counted(own, network, attempt, now, is_right)
                copy.change(msgspec.msgpack.encode(counted))
        return wait

    def wait_seconds(self, address: str, attempt: bytes) -> float:
        own, network = units_of(address)
        with self._copy.turn():
            return self._limiter.wait_of(own, network, attempt, self._clock())
