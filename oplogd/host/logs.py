"""Logging to stderr, and episodes: two log lines for a repeated problem."""

import logging
import time
from collections.abc import Callable

from oplog_kit import logs


def configure(fmt: logs.Format, debug: bool, worker: int | None = None) -> None:
    """Log to stderr: ``oplogd`` from INFO or DEBUG on, everything else from WARNING on.

    ``worker``: the number of this process among several, for each line. A second call replaces the
    first. Start uvicorn with ``log_config=None``: otherwise it sets its own handlers.
    """
    logs.configure(fmt, debug, ["oplogd"], traces=True, worker=worker)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.WARNING)
        logger.propagate = True
    logging.getLogger("uvicorn.access").disabled = True


class Episode:
    """A problem that repeats: one line for its first occurrence, one with the count for its end.

    ``quiet``: seconds without an occurrence that end the episode. A full queue drains and fills
    many times per second, which should be one episode. Call ``end`` after every success, and all
    methods from one thread.
    """

    def __init__(
        self,
        logger: logging.Logger,
        problem: str,
        *,
        quiet: float = 0.0,
        level: int = logging.WARNING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._problem = problem
        self._quiet = quiet
        self._level = level
        self._clock = clock
        self._count = 0
        self._began = self._last = 0.0

    @property
    def active(self) -> bool:
        return self._count > 0

    def occurred(self, times: int = 1, *, detail: str = "") -> None:
        """Count an occurrence. The first of an episode is logged, with ``detail``."""
        self._last = self._clock()
        if not self._count:
            self._began = self._last
            self._logger.log(
                self._level, "%s", f"{self._problem}: {detail}" if detail else self._problem
            )
        self._count += times

    def end(self, *, force: bool = False) -> None:
        """Log the end of the episode if it has been quiet long enough, or if ``force`` is set."""
        now = self._clock()
        if not self._count or (now - self._last < self._quiet and not force):
            return
        seconds = self._last - self._began if self._quiet else now - self._began
        count, self._count = self._count, 0
        plural = "time" if count == 1 else "times"
        self._logger.log(
            self._level, "%s: over, %d %s in %.1f s", self._problem, count, plural, seconds
        )
