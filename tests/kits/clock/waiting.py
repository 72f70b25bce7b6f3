"""Waiting for a condition that nothing announces."""

import time
from collections.abc import Iterator

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.01, 0.06, 1.2


def attempts(seconds: float) -> Iterator[None]:
    """Yield for each attempt until the time is over.

    The pauses between them grow: each attempt costs the agent and its store CPU time.
    """
    pause, deadline = _FIRST_PAUSE, time.monotonic() + seconds
    while True:
        yield
        if time.monotonic() > deadline:
            return
        time.sleep(pause)
        pause = min(_GROWTH * pause, _LONGEST_PAUSE)
