"""The memory of all request bodies that are being received and decoded. No I/O."""

from types import TracebackType
from typing import Self

from oplogd.errors import OplogError
from oplogd.ingest.http import TooLargeError


class NoRoomError(OplogError):
    """Other bodies occupy the memory; trying later makes sense."""


class Budget:
    """``total`` bytes for all bodies together."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0

    def share(self) -> "Share":
        return Share(self)


class Share:
    """One body's part of the budget, given back at the end of the ``with`` block."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, octets: int) -> None:
        """Count bytes before they are held. Raises NoRoomError, and TooLargeError if they would never fit."""
        budget = self._budget
        if self._taken + octets > budget.total:
            raise TooLargeError(f"the body needs more than the {budget.total:,} bytes of --max-upload-memory")
        if budget.used + octets > budget.total:
            raise NoRoomError(
                f"the bodies in flight occupy the {budget.total:,} bytes of --max-upload-memory; try again later"
            )
        budget.used += octets
        self._taken += octets

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.used -= self._taken
        self._taken = 0
