"""Bounds the memory of all request bodies that are received and decoded. No I/O."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import OplogError
from oplogd.ingest.body import TooLargeError


class NoRoomError(OplogError):
    """Other bodies use the memory now; trying again later makes sense."""


class MemoryBudget:
    """``total`` bytes for all bodies together.

    When a body finds no room, bodies that have been arriving for longer than ``seconds`` are given
    up: a few slow senders must not keep out all others.
    """

    def __init__(self, total: int, seconds: float, clock: Clock = SYSTEM) -> None:
        self.clock = clock
        self.total = total
        self.used = 0
        self._seconds = seconds
        self._arriving: dict[Share, Callable[[], None]] = {}  # oldest first

    def share(self) -> "Share":
        return Share(self)

    def begin_arrival(self, share: "Share", give_up: Callable[[], None]) -> None:
        self._arriving[share] = give_up

    def end_arrival(self, share: "Share") -> None:
        self._arriving.pop(share, None)

    def make_room(self, octets: int) -> None:
        """Give up the oldest slow bodies, as many as needed. Each frees its room when it ends."""
        due = self.clock.monotonic() - self._seconds
        for share, give_up in list(self._arriving.items()):
            if octets <= 0 or share.begun > due:
                return
            octets -= share.taken
            del self._arriving[share]
            give_up()


class Share:
    """The bytes of one body, given back at the end of the ``with`` block."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.begun = budget.clock.monotonic()
        self.taken = 0

    def take(self, octets: int) -> None:
        """Reserve bytes. Raises NoRoomError, and TooLargeError if they would never fit."""
        budget = self._budget
        if self.taken + octets > budget.total:
            raise TooLargeError(
                f"the body needs more than the {budget.total:,} bytes of --max-upload-memory"
            )
        if budget.used + octets > budget.total:
            budget.make_room(budget.used + octets - budget.total)
            raise NoRoomError(
                f"the bodies in flight occupy the {budget.total:,} bytes of --max-upload-memory;"
                " try again later"
            )
        budget.used += octets
        self.taken += octets

    def begin_arrival(self, give_up: Callable[[], None]) -> None:
        """Note that the body arrives now. ``give_up`` ends it if other bodies need the room."""
        self._budget.begin_arrival(self, give_up)

    def end_arrival(self) -> None:
        self._budget.end_arrival(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_arrival()
        self._budget.used -= self.taken
        self.taken = 0
