"""The consumer: follows an agent, reconnects and keeps its position."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from inspect import isawaitable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from oplogc.acks import Acks
from oplogc.address import check_proxy, stream_endpoint
from oplogc.backoff import Backoff
from oplogc.callbacks import Callback, Callbacks
from oplogc.events import Checkpoint, Event, position_of
from oplogc.receiver import Receiver
from oplogc.state_file import Saver, StateFile
from oplogc.wake_up import WakeUp, check_no_loop

_C = TypeVar("_C", bound=Callback)
logger = logging.getLogger("oplogc")


class Consumer:
    """Follow an agent with ``async for``, with ``for``, or with callbacks: operations, ``Reset``
    and ``Live``.

    A consumer reconnects by itself and resumes where it was. No operation is lost; one may come
    twice in a replication or after a crash. Iterate in one way and from one thread. Any thread may
    call ``ack`` and ``stop``.

    - ``types``, ``parents``: receive only operations of these types, with one of these parents.
      Empty: all.
    - ``start``: ``"0"`` for a copy of all objects, an event id, or a time with a zone to begin with
      the objects changed since then. None: begin with the next operation.
    - ``state_file``: keeps the position. A position in it overrides ``start``. Every event must
      then be acknowledged with ``ack``, ``Reset`` and ``Live`` too: the saved position is that of
      the oldest unacknowledged event. Iteration waits while ``max_unacked`` events are
      unacknowledged. The consumer locks the file until it is closed.
    - ``password``: overrides user and password of the URL. ``proxy``: URL of an HTTP proxy; None:
      taken from the environment (``HTTPS_PROXY`` ...).
    - ``timeout``: seconds until the agent must have answered. ``heartbeat_timeout``: seconds of
      silence until a connection counts as dead; agents send something at least every 25 s.
    - ``backoff``: first and longest pause between attempts in seconds; pauses double, with jitter.
    - ``save_interval``: seconds between two writes of the state file. Events acknowledged since the
      last write come again after a crash.

    Raises ValueError for a bad argument and StateFileError for a state file that cannot be used.
    Iterating raises RefusedError if the agent refuses for good (a wrong password), ProtocolError if
    the address is no agent, and StateFileError at the end if the position could not be saved.
    """

    def __init__(
        self,
        url: str = "http://localhost:8042",
        *,
        types: Sequence[str] = (),
        parents: Sequence[str] = (),
        start: str | datetime | None = None,
        state_file: str | Path | None = None,
        password: str | None = None,
        proxy: str | None = None,
        timeout: float = 10.0,
        heartbeat_timeout: float = 40.0,
        backoff: tuple[float, float] = (1.0, 30.0),
        save_interval: float = 1.0,
        max_unacked: int = 10_000,
    ) -> None:
        for name, values in (("types", types), ("parents", parents)):
            if isinstance(values, str) or not all(values):
                raise ValueError(f"{name}: give a list of names, none of them empty")
        check_proxy(proxy)
        endpoint = stream_endpoint(url, password, types, parents)
        position = position_of(start) if start is not None else ""
        if not (timeout > 0 and heartbeat_timeout > 0):
            raise ValueError("timeout and heartbeat_timeout: give seconds, more than 0")
        if max_unacked < 1:
            raise ValueError("max_unacked must be at least 1")
        if not save_interval >= 0:
            raise ValueError("save_interval: give seconds, 0 or more")
        waits = Backoff(*backoff)
        self._max_unacked = max_unacked
        self._save_interval = save_interval
        self._file = StateFile(state_file) if state_file is not None else None
        self._saver: Saver | None = None
        if self._file is not None:
            position = self._file.position or position
        self._acks = Acks(position)
        self._receiver = Receiver(endpoint, proxy, timeout, heartbeat_timeout, waits, position)
        self._pending: deque[Event | Checkpoint] = deque()
        self._stopped = False
        self._closings = 0
        self._warned_of_unacked = False
        self._wake_up = WakeUp()
        self._callbacks = Callbacks()

    @property
    def connections(self) -> int:
        """Number of streams opened so far."""
        return self._receiver.connections

    @property
    def position(self) -> str:
        """The position from which a new consumer loses nothing. Empty before the agent has sent the
        first one.

        With a state file: before the oldest unacknowledged event. Without one: after the last event
        handed out.
        """
        return self._acks.position

    def ack(self, event: Event) -> None:
        """Acknowledge an event as handled: in any order, from any thread. Only needed with a state
        file.

        Raises ValueError for an event of another consumer.
        """
        if self._file is None:
            return
        if self._acks.ack(event.sequence) and self._saver is not None:
            self._saver.changed()
        if self._warned_of_unacked and self._acks.unacked <= self._max_unacked // 2:
            self._warned_of_unacked = False
        self._wake_up.wake()

    def stop(self) -> None:
        """End the iteration. May be called from any thread, a callback or a signal handler."""
        self._stopped = True
        self._wake_up.wake()

    # Asynchronous use

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event.

        A cancelled call, by a time-out for example, loses no event and keeps the connection.
        """
        closings = self._closings
        while True:
            if self._stopped or self._closings != closings:
                raise StopAsyncIteration
            if self._pending and self._has_room():
                item = self._pending.popleft()
                if not isinstance(item, Checkpoint):
                    return self._hand_out(item)
                self._pass(item)
            else:
                await self._more()

    async def aclose(self) -> None:
        """Close the connection, save the position and end a waiting iteration.

        Raises StateFileError.
        """
        self._closings += 1
        self._wake_up.wake()
        try:
            await self._receiver.aclose()
        finally:
            if self._saver is not None:
                await asyncio.to_thread(self.close)
            else:
                self.close()

    # Blocking use

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        check_no_loop("async for")
        with asyncio.Runner() as runner:
            try:
                while True:
                    # The event loop only runs to wait for the network: pending events cost no turn
                    # of it.
                    while self._pending and self._has_room() and not self._stopped:
                        item = self._pending.popleft()
                        if isinstance(item, Checkpoint):
                            self._pass(item)
                        else:
                            yield self._hand_out(item)
                    if self._stopped:
                        return
                    runner.run(self._more())
            finally:
                runner.run(self._receiver.aclose())

    def close(self) -> None:
        """Save the position. Raises StateFileError."""
        try:
            if self._saver is not None:
                saver, self._saver = self._saver, None
                saver.close()
        finally:
            if self._file is not None:
                self._file.unlock()

    # Callbacks

    def on(self, *types: str) -> Callable[[_C], _C]:
        """Register a function, plain or async, for operations of these types. Without a type: for
        all others.

        ``run`` acknowledges an event when its callback has returned, and at once if it has no
        callback. An exception of a callback ends ``run``, and its event stays unacknowledged. See
        ``on_reset`` and ``on_live`` for the other events.
        """
        return self._callbacks.on(*types)

    def on_reset(self, callback: _C) -> _C:
        """Register a function, plain or async, for ``Reset``."""
        return self._callbacks.on_event("reset", callback)

    def on_live(self, callback: _C) -> _C:
        """Register a function, plain or async, for ``Live``."""
        return self._callbacks.on_event("live", callback)

    async def run_async(self) -> None:
        """Call the callbacks, one after another, until ``stop``.

        Raises their exceptions and the exceptions of iterating.
        """
        self._callbacks.warn_of_old_names()
        async with self:
            async for event in self:
                if callback := self._callbacks.of(event):
                    result = callback(event)
                    if isawaitable(result):
                        await result
                self.ack(event)

    def run(self) -> None:
        """Call the callbacks until ``stop``, without an event loop of the program.

        See ``run_async``.
        """
        check_no_loop("run_async")
        asyncio.run(self.run_async())

    # Parts common to all uses

    def _has_room(self) -> bool:
        return self._file is None or self._acks.unacked < self._max_unacked

    def _hand_out(self, event: Event) -> Event:
        if self._file is None:
            self._acks.position = event.event_id
        else:
            self._acks.handed_out(event.sequence, event.event_id)
        return event

    def _pass(self, checkpoint: Checkpoint) -> None:
        self._acks.passed(checkpoint.event_id)
        if self._saver is not None:
            self._saver.changed()

    async def _more(self) -> None:
        """Wait until a pending event may be handed out, or until ``stop``."""
        closings = self._closings
        with self._wake_up.waiting() as woken:
            if self._stopped:
                return
            if self._pending:
                await self._wait_for_room(woken)
                return
            if self._file is not None and self._saver is None:
                self._file.lock()
                self._saver = Saver(self._file, lambda: self._acks.position, self._save_interval)
                self._saver.changed()
            receiving = self._receiver.start()
            if not receiving.done():
                await self._wait_until_done(receiving, woken)
            if self._closings == closings:
                self._pending.extend(self._receiver.take())

    async def _wait_until_done(
        self, receiving: "asyncio.Task[list[Event | Checkpoint]]", woken: asyncio.Event
    ) -> None:
        """Wait until ``receiving`` ends, or until ``stop``.

        If this is cancelled, ``receiving`` goes on for the next call.
        """

        def wake(_: object) -> None:
            woken.set()

        receiving.add_done_callback(wake)
        try:
            closings = self._closings
            while not receiving.done() and not self._stopped and self._closings == closings:
                await woken.wait()
                woken.clear()
        finally:
            receiving.remove_done_callback(wake)

    async def _wait_for_room(self, woken: asyncio.Event) -> None:
        if not self._warned_of_unacked:  # once until there is room again
            self._warned_of_unacked = True
            logger.warning("%d events are not acknowledged: waiting", self._acks.unacked)
        if not self._has_room():
            await woken.wait()  # for `ack` or `stop`
