"""Delivery over HTTP for the producer for threads."""

import contextlib
import threading
from collections.abc import Callable

from oplogc.http.address import shown
from oplogc.process.at_exit import close_at_exit, open_ones
from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.producers.options import HttpOptions
from oplogc.producers.sender import HttpWay


class Delivery(HttpWay):
    """Delivers with an event loop in a thread.

    In the child of a fork the buffer is empty: the parent delivers the operations sent before.
    """

    def __init__(self, options: HttpOptions) -> None:
        super().__init__(options)
        after_fork(self, Delivery._begin)

    def _begin(self) -> None:
        super()._begin()
        self._lock = self._changed = threading.Condition()
        self._thread = LoopThread("oplogc-producer", self._run)

    def __str__(self) -> str:
        buffered = self._outbox.counters.buffered
        return f"{buffered:,} operations are buffered for {shown(self._options.endpoint.url)}"

    def send(self, raw: bytes) -> None:
        with self._changed:
            has_room = self._has_room(raw)
            if not has_room and self._options.overflow == "block":
                timeout = _seconds(self._options.block_timeout)
                has_room = self._changed.wait_for(lambda: self._has_room(raw), timeout)
            self._put(raw, has_room)

    def flush(self, timeout: float | None) -> None:
        outbox = self._outbox
        with self._changed:
            until = outbox.last
            self._changed.wait_for(
                lambda: outbox.is_flushed(until) or self._ended, _seconds(timeout)
            )
            outbox.check_flushed(until)

    def close(self, timeout: float | None) -> None:
        with self._changed:
            if self._ended:
                return
            first = not self._closing
            self._closing = True
            self._notify()
        try:
            self.flush(timeout)
        finally:
            if first:
                self._end()

    def abandon(self) -> bool:
        """End when all is delivered: the program cannot call ``close`` any more.

        Return whether it was open.
        """
        with self._changed:
            was_open = self._thread.has_started and not self._closing
            self._closing = True
            if was_open:
                self._in_loop(self._finish)
            return was_open

    def flush_at_exit(self, timeout: float) -> None:
        """Deliver the remaining operations if ``close`` was not called."""
        if self._thread.has_started:
            buffered = self._outbox.counters.buffered
            close_at_exit(
                self,
                timeout,
                "operations are lost at the end of the program: close the producer",
                f"a producer was not closed at the end: {self}" if buffered else "",
            )

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._notify()
        self._thread.end()
        open_ones.discard(self)

    def _start(self) -> None:
        if not self._thread.has_started:
            self._thread.start()
            open_ones.add(self)

    def _in_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError, ValueError):  # the loop has ended
            self._thread.soon(call)

    def _notify(self) -> None:
        self._changed.notify_all()


def _seconds(timeout: float | None) -> float | None:
    """Return a time-out for a lock. Longer ones, such as infinity, are for ever."""
    return None if timeout is None or timeout > threading.TIMEOUT_MAX else timeout
