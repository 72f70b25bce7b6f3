"""The part of a producer for threads that delivers over HTTP."""

import asyncio
import atexit
import dataclasses
import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from oplogc.http.address import Endpoint, shown
from oplogc.process.forks import after_fork
from oplogc.process.own_loop import OwnLoop
from oplogc.producers.outbox import Counters, Outbox, Overflow
from oplogc.producers.sender import Sender
from oplogc.wire.errors import FlushError

EXIT_SECONDS = 5.0
"""How long everything that was not closed may flush in total at the interpreter's end."""

CLOSED = "the producer is closed"
_END_SECONDS = 1.0
logger = logging.getLogger("oplogc")


class Delivery:
    """A bounded buffer, and a thread with an event loop of its own that delivers it over HTTP."""

    def __init__(
        self,
        endpoint: Endpoint,
        proxy: str | None,
        timeout: float,
        make_outbox: Callable[[], Outbox],
        overflow: Overflow,
        block_timeout: float | None,
    ) -> None:
        self._endpoint = endpoint
        self._proxy = proxy
        self._timeout = timeout
        self._make_outbox = make_outbox
        self._overflow = overflow
        self._block_timeout = block_timeout
        self._closing = False
        self._abandoned = False
        self._ended = False
        self._begin()
        after_fork(self, Delivery._begin)

    def _begin(self) -> None:
        """Begin with an empty buffer.

        In the child of a fork the parent's thread delivers the operations sent before.
        """
        self._changed = threading.Condition()
        self._outbox = self._make_outbox()
        self._sender = Sender(
            self._endpoint,
            self._proxy,
            self._timeout,
            self._outbox,
            self._changed,
            self._changed.notify_all,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def __str__(self) -> str:
        buffered = self._outbox.counters.buffered
        return f"{buffered:,} operations are buffered for {shown(self._endpoint.url)}"

    def send(self, raw: bytes) -> None:
        outbox = self._outbox
        with self._changed:
            has_room = self._closing or outbox.has_room(raw) or self._make_room(raw)
            if self._closing:
                raise ValueError(CLOSED)
            if not has_room:
                outbox.refuse(self._overflow)
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="oplogc-producer", daemon=True)
                thread.start()  # raises RuntimeError if no thread can be started
                self._thread = thread
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
        """End when all is delivered, since nobody can call ``close``.

        Return whether it was open.
        """
        with self._changed:
            was_open = self._thread is not None and not self._closing
            self._closing = self._abandoned = True
            self._in_loop(self._sender.finish)
            return was_open

    def flush_at_exit(self, timeout: float) -> None:
        """Deliver the remaining operations if ``close`` was not called."""
        if self._thread is None:
            return
        forgotten = str(self)
        pending = self._outbox.counters.buffered
        try:
            self.close(timeout)
        except FlushError as error:
            logger.error(
                "%d operations are lost at the end of the program: close the producer. %s",
                error.pending,
                error,
            )
        if pending:
            warnings.warn(
                f"a producer was not closed at the end: {forgotten}", ResourceWarning, stacklevel=1
            )

    def counters(self) -> Counters:
        with self._changed:
            return dataclasses.replace(self._outbox.counters)

    def _make_room(self, raw: bytes) -> bool:
        if self._overflow == "block":
            timeout = _seconds(self._block_timeout)
            return self._changed.wait_for(
                lambda: self._outbox.has_room(raw) or self._closing, timeout
            )
        return self._overflow == "drop_old" and self._outbox.drop_old_for(raw)

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            if self._task is not None:
                self._in_loop(self._task.cancel)
        if self._thread is not None:
            self._thread.join(
                _END_SECONDS
            )  # it may hang in the lookup of a host; it ends with the process
        open_ones.discard(self)

    def _in_loop(self, call: Any) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(call)
            except RuntimeError:  # it has ended
                return

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=OwnLoop) as runner:
            try:
                runner.run(self._send_all())
            except asyncio.CancelledError:
                return

    async def _send_all(self) -> None:
        with self._changed:
            if self._ended:
                return
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            if self._abandoned:
                self._sender.finish()
        await self._sender.run()


def _seconds(timeout: float | None) -> float | None:
    """A time-out that a lock takes: longer ones, such as infinity, are for ever."""
    return None if timeout is None or timeout > threading.TIMEOUT_MAX else timeout


class Open(Protocol):
    """An object with a thread, to be flushed at the end of the program."""

    def flush_at_exit(self, timeout: float) -> None: ...


open_ones: "weakref.WeakSet[Open]" = weakref.WeakSet()
"""Those that were not closed."""


@atexit.register
def _flush_at_exit() -> None:
    until = time.monotonic() + EXIT_SECONDS
    for each in list(open_ones):
        each.flush_at_exit(max(0.0, until - time.monotonic()))
