"""The guarded time for /status and /metrics."""

from typing import Any

from oplogd.clock.guard import GuardedClock, text_of
from oplogd.clock.keeper import ClockKeeper


class ClockFigures:
    def __init__(self, clock: GuardedClock, keeper: ClockKeeper) -> None:
        self._clock = clock
        self._keeper = keeper

    def members(self) -> dict[str, Any]:
        """Return the member ``clock`` of /status."""
        step = self._clock.step()
        return {
            "paused": 0 if step is None or step.is_stop else 1,
            "waiting": [] if step is None else list(step.waiting),
            "step_seconds": 0.0 if step is None else step.seconds,
            "from": None if step is None else text_of(step.from_ms),
            "to": None if step is None else text_of(step.to_ms),
            "ahead_seconds": self._keeper.ahead_ms // 1000,
        }

    def warnings(self) -> list[str]:
        """Return sentences for people."""
        step, ahead = self._clock.step(), self._keeper.warning
        stepped = None
        if step is not None and not step.is_stop:
            stepped = (
                f"the clock stepped by {step.seconds:+.0f} s, from {text_of(step.from_ms)} to"
                f" {text_of(step.to_ms)}: {' and '.join(step.waiting)} do not follow it yet"
            )
        return [each for each in (stepped, ahead) if each is not None]
