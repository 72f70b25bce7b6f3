"""The bound of the commit log: the recorder waits here until the keeper has made room."""

import logging
import threading
import time
from collections.abc import Callable

from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.model.status import LogStatus

# Seconds between two looks of a waiting thread.
_LOOK = 0.2
# Seconds after which a wait is logged: during a copy, sinks let the sources wait often.
_TELL_AFTER = 10.0

logger = logging.getLogger("oplog_pipe")


class CommitLogRoom:
    """``max_bytes`` of the log; None: no bound. ``clock``: seconds.

    - ``reason``: why the sources wait, as a sentence; None: they do not.
    - ``asked``: called when an append begins to wait, and at each of its looks.

    One append waits at a time. Its wait has a number, so a late answer does not count.
    """

    def __init__(
        self,
        log: CommitLog,
        max_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_bytes = max_bytes
        self.reason: str | None = None
        self.asked: Callable[[], None] = lambda: None
        self._log = log
        self._clock = clock
        self._changed = threading.Condition()
        self._number = 0
        self._wanted = 0
        self._granted = False
        self._since = 0.0
        self._logged = False

    def status(self) -> LogStatus:
        """Return the present state of the log. Any thread may call it."""
        log = self._log
        figures = log.oldest, log.end, log.bytes, len(log.segments), log.compacted
        return LogStatus(*figures, self.max_bytes, self.reason)

    def wait(self, size: int, is_over: Callable[[], bool]) -> bool:
        """Wait until the log has room for so many bytes.

        Returns False once ``is_over`` returns true; call ``wake`` then.
        """
        with self._changed:
            self._since = self._clock()
            self._number += 1
            while not self._granted and self._lacks(size):
                if is_over():
                    return self._end(fits=False)
                self._wanted = size
                self.asked()
                self._changed.wait_for(
                    lambda: self._granted or not self._lacks(size) or is_over(), _LOOK
                )
            return self._end(fits=True)

    def _end(self, *, fits: bool) -> bool:
        if self._logged and fits:
            logger.info("the commit log has room again, and the sources go on")
        self._wanted, self._granted, self._logged, self.reason = 0, False, False, None
        return fits

    def wake(self) -> None:
        """Let a waiting thread look again."""
        with self._changed:
            self._changed.notify_all()

    @property
    def lacking(self) -> int | None:
        """The number of the wait for which something must leave the log; None: nothing must."""
        with self._changed:
            is_waiting = self._wanted > 0 and not self._granted
            return self._number if is_waiting and self._lacks(self._wanted) else None

    def _lacks(self, size: int) -> bool:
        return self.max_bytes is not None and self._log.bytes + size > self.max_bytes

    def grant(self, number: int) -> None:
        """Let the append of a wait go on: nothing can leave."""
        with self._changed:
            if self._wanted and number == self._number:
                self._granted = True
                self._changed.notify_all()

    def refuse(self, number: int, reason: str) -> None:
        """Note why the append of a wait has no room yet."""
        with self._changed:
            if not self._wanted or number != self._number:
                return
            self.reason = reason
            if not self._logged and self._clock() - self._since >= _TELL_AFTER:
                self._logged = True
                logger.warning("%s", reason)
