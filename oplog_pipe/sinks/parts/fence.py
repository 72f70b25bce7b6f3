"""The fence of an owner's rows, which tells writers of the present batch from late ones.

In a target without transactions a writer looks at it, and then writes within seconds. So for a
while after a move something of an earlier writer may still come. Whoever moves the fence waits for
this time if there may be earlier writers.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from oplog_pipe.errors import FencedError, SinkError

LOOK_SECONDS = 10.0
"""How long a look at the fence holds."""

SETTLED = 1 << 62
"""The step of a term without writers, behind the time in which earlier ones may be late."""


class Fence(NamedTuple):
    """A place in the life of the rows of an owner. ``term``: of a driver. ``step``: ascends in it.

    A later driver has a larger term, and begins at any step.
    """

    term: int
    step: int


def boot_seconds() -> float:
    """Return seconds that also pass while the process is stopped and the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class FenceLook:
    """Of a writer. ``fence``: where it stands; None: it has none, and nothing is looked at.

    ``read``: returns where the fence is; None: there is none. ``now``: seconds.
    """

    def __init__(
        self,
        fence: Fence | None = None,
        read: Callable[[], Fence | None] = lambda: None,
        now: Callable[[], float] = boot_seconds,
    ) -> None:
        self._fence = fence
        self._read = read
        self._now = now
        self._at = 0.0

    def look(self) -> None:
        """Raises FencedError if the fence is elsewhere, and SinkError."""
        if self._fence is None:
            return
        at = self._now()
        if self._read() != self._fence:
            raise FencedError("a later writer of these rows has begun")
        self._at = at

    def check(self) -> None:
        """Call right before a request that changes something. Raises SinkError, ``transient``."""
        passed = 0.0 if self._fence is None else self._now() - self._at
        if passed > LOOK_SECONDS:
            reason = f"the writer did nothing for {passed:.0f} s, and looks at the fence again"
            raise SinkError(reason, transient=True)


def other_driver(owner: str) -> FencedError:
    return FencedError(f"another driver writes the rows of {owner!r}: it has begun after this one")
