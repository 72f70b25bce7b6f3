"""Bounds the memory of all request bodies received and decoded. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from oplogd.clock import SYSTEM, Clock
from oplogd.decode.compressed import TooLargeError
from oplogd.errors import OplogError

# Bodies up to this size, in bytes, may also use the reserve.
SMALL_BODY = 64 * 1024

# Polls share this part of --max-upload-memory, in addition to it, and at least this many bytes.
_POLLS_PART = 8
_POLLS_LEAST = 4 * 1024 * 1024
_RESERVE_PART = 16


class NoRoomError(OplogError):
    """Other bodies use the memory now; trying again later makes sense."""


@dataclass(eq=False)
class MemoryBudget:
    """``total`` bytes for all bodies together, and ``reserve`` bytes for small ones if it is full.

    A body without room ends others that have been arriving for longer than ``seconds``: slow
    senders must not keep out all others. ``name``: of the bytes, for messages.
    """

    total: int
    seconds: float
    clock: Clock = SYSTEM
    reserve: int = field(default=0, kw_only=True)
    name: str = field(default="--max-upload-memory", kw_only=True)
    used: int = field(default=0, init=False)
    # Oldest first.
    arriving: "dict[Share, Callable[[], None]]" = field(default_factory=dict, init=False)

    def share(self) -> "Share":
        return Share(self)

    def has_room(self, size: int) -> bool:
        """Return whether a body of this size could be taken now."""
        return self.used + size <= self.total

    def make_room(self, size: int) -> None:
        """Give up the oldest slow bodies, as many as needed. Each frees its room when it ends."""
        due = self.clock.monotonic() - self.seconds
        for share, give_up in list(self.arriving.items()):
            if size <= 0 or share.begun > due:
                return
            size -= share.taken
            del self.arriving[share]
            give_up()


class Share:
    """The bytes of one body, given back at the end of the ``with`` block."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.begun = budget.clock.monotonic()
        self.taken = 0

    def take(self, size: int) -> None:
        """Reserve bytes. Raises NoRoomError, and TooLargeError if they would never fit."""
        budget = self._budget
        if self.taken + size > budget.total:
            raise TooLargeError(
                f"the body needs more than the {budget.total:,} bytes of {budget.name}"
            )
        room = budget.total
        if self.taken + size <= SMALL_BODY:
            room += budget.reserve
        if budget.used + size > room:
            budget.make_room(budget.used + size - budget.total)
            raise NoRoomError(
                f"the bodies in flight occupy the {budget.total:,} bytes of {budget.name};"
                " try again later"
            )
        budget.used += size
        self.taken += size

    def begin_arrival(self, give_up: Callable[[], None]) -> None:
        """Note that the body arrives now. ``give_up`` ends it if other bodies need the room."""
        self._budget.arriving[self] = give_up

    def end_arrival(self) -> None:
        self._budget.arriving.pop(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_arrival()
        self._budget.used -= self.taken
        self.taken = 0


class Budgets(NamedTuple):
    """Readers and writers have budgets of their own: neither can keep out the others."""

    writes: MemoryBudget
    polls: MemoryBudget

    @classmethod
    def of(
        cls, total: int, seconds: float, clock: Clock = SYSTEM, *, is_part: bool = False
    ) -> Self:
        """Return the budgets for a ``--max-upload-memory`` of ``total`` bytes.

        ``is_part``: this is the part of one of several workers. Messages then say so.
        """
        polls = max(total // _POLLS_PART, _POLLS_LEAST)
        name = "a worker's part of --max-upload-memory" if is_part else "--max-upload-memory"
        return cls(
            MemoryBudget(total, seconds, clock, reserve=total // _RESERVE_PART, name=name),
            MemoryBudget(polls, seconds, clock, name=f"memory for polls ({name})"),
        )
