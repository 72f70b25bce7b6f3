"""Pauses that grow from one attempt to the next. No clock, no jitter."""


class Backoff:
    """``pause``: seconds before the next attempt. It doubles from ``first`` up to ``longest``."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self.pause = first

    def grow(self) -> None:
        self.pause = min(2 * self.pause, self._longest)

    def reset(self) -> None:
        self.pause = self._first
