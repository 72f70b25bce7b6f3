"""Follows an agent for as long as it takes and remembers how far it got."""

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

_C = TypeVar("_C", bound=Callback)
logger = logging.getLogger("oplogc")


class Consumer:
    """Operations, ``Reset`` and ``Live`` from an agent, with ``async for``, with ``for``, or with callbacks.

    It reconnects by itself and goes on where it was, so that nothing is lost; an operation may come twice in a replication
    or after a crash. Iterate in one way, from one thread; ``ack`` and ``stop`` may be called from any.

    - ``types``, ``parents``: only operations of these types, with one of these parents. Empty: all.
    - ``start``: where to begin: ``"0"`` for a full copy of all objects, an event id, or a time (with its time zone) from
      which on changed objects are wanted. None: with the next operation.
    - ``state_file``: keeps the position; what it holds comes before ``start``. Then every event must be acknowledged with
      ``ack``, ``Reset`` and ``Live`` too: the position saved is that of the oldest event that is not. At most
      ``max_unacked`` events are handed out without an acknowledgement; then iteration waits for one. The consumer locks
      the file, until it is closed or the process ends: no other may use it meanwhile.
    - ``password``: the agent's; user and password of the URL count, too. ``proxy``: the URL of an HTTP proxy; else the environment's (``HTTPS_PROXY`` ...).
    - ``timeout``: seconds until the agent has answered. ``heartbeat_timeout``: seconds of silence after which a connection
      counts as dead; agents send something at least every 25.
    - ``backoff``: seconds between attempts, the first and the longest; they double, with jitter.
    - ``save_interval``: seconds between two writes of the state file. What was acknowledged since the last write comes
      again after a crash.

    Raises ValueError for a bad argument and StateFileError for a state file that cannot be used. Iterating raises
    RefusedError when the agent refuses for good (a wrong password), ProtocolError when the address is no agent, and
    StateFileError at the end when the position could not be saved.
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
        self._told_waiting = False
        self._alarm: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._callbacks = Callbacks()

    @property
    def connections(self) -> int:
        """How often a stream was opened."""
        return self._receiver.connections

    @property
    def position(self) -> str:
        """The event id from which a new consumer loses nothing; empty before the agent has told the first.

        With a state file that is before the oldest event not acknowledged, without one after the last event handed out.
        """
        return self._acks.position

    def ack(self, event: Event) -> None:
        """The event is dealt with. In any order, from any thread, as often as you like; needed with a state file only.

        Raises ValueError for an event of another consumer.
        """
        if self._file is None:
            return
        if self._acks.ack(event.sequence) and self._saver is not None:
            self._saver.changed()
        if self._told_waiting and self._acks.unacked <= self._max_unacked // 2:
            self._told_waiting = False
        self._wake()

    def stop(self) -> None:
        """End the iteration: from any thread, a callback or a signal handler."""
        self._stopped = True
        self._wake()

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
        """May be cancelled, by a time-out for example, and called again: nothing is lost, the connection stays."""
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
        """Close the connection, save the position, end an iteration that waits. Raises StateFileError."""
        self._closings += 1
        self._wake()
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
        _check_no_loop("async for")
        with asyncio.Runner() as runner:
            try:
                while True:
                    # The event loop runs only to wait for the network: events at hand cost no turn of it.
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
        """Decorate a function, plain or async, that takes operations of these types (without a type: all others).

        ``run`` acknowledges an event when its callback has returned; those without a callback at once. An exception of
        a callback ends ``run`` with its event not acknowledged. For ``Reset`` and ``Live`` see ``on_reset`` and ``on_live``.
        """
        return self._callbacks.on(*types)

    def on_reset(self, callback: _C) -> _C:
        """Decorate a function, plain or async, that takes ``Reset``."""
        return self._callbacks.on_event("reset", callback)

    def on_live(self, callback: _C) -> _C:
        """Decorate a function, plain or async, that takes ``Live``."""
        return self._callbacks.on_event("live", callback)

    async def run_async(self) -> None:
        """Call the callbacks, one after another, until ``stop``. Raises what they raise, and what iterating raises."""
        self._callbacks.warn_of_old_names()
        async with self:
            async for event in self:
                if callback := self._callbacks.of(event):
                    result = callback(event)
                    if isawaitable(result):
                        await result
                self.ack(event)

    def run(self) -> None:
        """``run_async`` for a program without an event loop."""
        _check_no_loop("run_async")
        asyncio.run(self.run_async())

    # The parts common to all of them

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
        """Wait until there is something pending that may be handed out, or until ``stop``."""
        if self._alarm is not None and self._alarm[0].is_running():
            raise RuntimeError(
                "this consumer is being iterated already: iterate from one task at a time"
            )
        alarm = asyncio.Event()
        closings = self._closings
        self._alarm = (asyncio.get_running_loop(), alarm)
        try:
            if self._stopped:
                return
            if self._pending:
                await self._for_room(alarm)
                return
            if self._file is not None and self._saver is None:
                self._file.lock()
                self._saver = Saver(self._file, lambda: self._acks.position, self._save_interval)
                self._saver.changed()
            receiving = self._receiver.start()
            if not receiving.done():
                await self._until_done(receiving, alarm)
            if self._closings == closings:
                self._pending.extend(self._receiver.take())
        finally:
            self._alarm = None

    async def _until_done(
        self, receiving: "asyncio.Task[list[Event | Checkpoint]]", alarm: asyncio.Event
    ) -> None:
        """Or until ``stop``. When this is cancelled ``receiving`` goes on, for the next call."""

        def wake(_: object) -> None:
            alarm.set()

        receiving.add_done_callback(wake)
        try:
            closings = self._closings
            while not receiving.done() and not self._stopped and self._closings == closings:
                await alarm.wait()
                alarm.clear()
        finally:
            receiving.remove_done_callback(wake)

    async def _for_room(self, alarm: asyncio.Event) -> None:
        if not self._told_waiting:  # once an episode
            self._told_waiting = True
            logger.warning("%d events are not acknowledged: waiting", self._acks.unacked)
        if not self._has_room():
            await alarm.wait()  # for `ack` or `stop`

    def _wake(self) -> None:
        alarm = self._alarm
        if alarm is not None:
            loop, event = alarm
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # the loop has ended meanwhile
                return


def _check_no_loop(instead: str) -> None:
    """Raise RuntimeError where an event loop runs, as in a notebook: it would stand still meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"an event loop runs in this thread: use {instead}")
