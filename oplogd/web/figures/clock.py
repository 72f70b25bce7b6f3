"""The guarded time for /status."""

from typing import Any

from oplogd.clock.guard import GuardedClock, text_of
from oplogd.clock.keeper import ClockKeeper


def clock_members(clock: GuardedClock, keeper: ClockKeeper) -> dict[str, Any]:
    """Return the member ``clock`` of /status."""
    step = clock.step()
    return {
        "paused": 0 if step is None or step.is_stop else 1,
        "waiting": [] if step is None else list(step.waiting),
        "step_seconds": 0.0 if step is None else step.seconds,
        "from": None if step is None else text_of(step.from_ms),
        "to": None if step is None else text_of(step.to_ms),
        "ahead_seconds": keeper.ahead_ms // 1000,
    }


def clock_warnings(clock: GuardedClock, keeper: ClockKeeper) -> list[str]:
    """Return sentences for people."""
    step = clock.step()
    warnings = [] if keeper.warning is None else [keeper.warning]
    if step is not None and not step.is_stop:
        stepped = (
            f"the clock stepped by {step.seconds:+.0f} s, from {text_of(step.from_ms)} to"
            f" {text_of(step.to_ms)}: {' and '.join(step.waiting)} do not follow it yet"
        )
        return [stepped, *warnings]
    return warnings
