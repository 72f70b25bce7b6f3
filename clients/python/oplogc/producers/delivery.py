"""Delivery over HTTP for the producer for threads."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable

from oplogc.http.address import shown
from oplogc.process.at_exit import close_at_exit, open_ones
from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.producers.options import CLOSED, HttpOptions
from oplogc.producers.outbox import Counters
from oplogc.producers.sender import Sender


class Delivery:
    """A bounded buffer, and a thread with an event loop to deliver it over HTTP."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._closing = False
        self._ended = False
        self._begin()
        after_fork(self, Delivery._begin)

    def _begin(self) -> None:
        """Begin with an empty buffer.

        In the child of a fork the parent's thread delivers the operations sent before.
        """
        self._changed = threading.Condition()
        self._outbox = self._options.outbox()
        self._sender = Sender(self._options, self._outbox, self._changed, self._changed.notify_all)
        self._thread = LoopThread("oplogc-producer", self._run)

    def __str__(self) -> str:
        buffered = self._outbox.counters.buffered
        return f"{buffered:,} operations are buffered for {shown(self._options.endpoint.url)}"

    def send(self, raw: bytes) -> None:
        outbox = self._outbox
        with self._changed:
            has_room = self._closing or outbox.has_room(raw) or self._make_room(raw)
            if self._closing:
                raise ValueError(CLOSED)
            if not has_room:
                outbox.refuse(self._options.overflow)
                return
            if not self._thread.has_started:
                self._thread.start()
                open_ones.add(self)
            outbox.add(raw)
            if outbox.counters.buffered == 1:
                self._in_loop(self._sender.more.set)

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
            self._changed.notify_all()
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
                self._in_loop(self._sender.finish)
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

    def counters(self) -> Counters:
        with self._changed:
            return dataclasses.replace(self._outbox.counters)

    def _make_room(self, raw: bytes) -> bool:
        if self._options.overflow == "block":
            timeout = _seconds(self._options.block_timeout)
            return self._changed.wait_for(
                lambda: self._outbox.has_room(raw) or self._closing, timeout
            )
        return self._options.overflow == "drop_old" and self._outbox.drop_old_for(raw)

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.end()
        open_ones.discard(self)

    def _in_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError, ValueError):  # the loop has ended
            self._thread.soon(call)

    async def _run(self) -> None:
        # A method of this object: it must live until an abandoned buffer is delivered.
        await self._sender.run()


def _seconds(timeout: float | None) -> float | None:
    """Return a time-out for a lock. Longer ones, such as infinity, are for ever."""
    return None if timeout is None or timeout > threading.TIMEOUT_MAX else timeout
