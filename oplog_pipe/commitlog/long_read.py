"""The log lines of a long read."""

import logging
import time
from collections.abc import Callable

_FIRST_SECONDS = 1.0
_SECONDS = 5.0
logger = logging.getLogger("oplog_pipe")


class LongRead:
    """Logs after a second, and then every five, how much of a read is done.

    ``what``: the sentence without its figures. ``total``: bytes or entries. ``clock``: seconds.
    """

    def __init__(self, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._total = total
        self._clock = clock
        self._due = clock() + _FIRST_SECONDS

    def at(self, done: int) -> None:
        """Note the progress."""
        now = self._clock()
        if now >= self._due and done < self._total:
            self._due = now + _SECONDS
            logger.info("%s: %d %%", self._what, 100 * done // self._total)
