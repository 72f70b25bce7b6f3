"""Outcomes of costly checks, kept up to a bound. No I/O."""

from typing import Generic, TypeVar

_Outcome = TypeVar("_Outcome")


class Verdicts(Generic[_Outcome]):
    """Outcomes by digest. Above ``most`` the oldest leave. Each has a cost in the unit of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._kept: dict[bytes, tuple[_Outcome, int]] = {}

    def find(self, digest: bytes) -> _Outcome | None:
        found = self._kept.get(digest)
        return None if found is None else found[0]

    def items(self) -> list[tuple[bytes, _Outcome]]:
        """Return all outcomes with their digests, the oldest first."""
        return [(digest, outcome) for digest, (outcome, _) in self._kept.items()]

    def keep(self, digest: bytes, outcome: _Outcome, cost: int = 1) -> None:
        """Keep an outcome. One that costs more than all is not kept."""
        self.forget(digest)
        while self._left < cost and self._kept:
            self.forget(next(iter(self._kept)))
        if self._left >= cost:
            self._left -= cost
            self._kept[digest] = outcome, cost

    def forget(self, digest: bytes) -> None:
        """Forget an outcome if it is kept."""
        found = self._kept.pop(digest, None)
        if found is not None:
            self._left += found[1]
