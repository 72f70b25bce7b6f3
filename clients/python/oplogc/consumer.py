"""Follows an agent for as long as it takes and remembers how far it got."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from inspect import isawaitable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from oplogc.acks import Acks
from oplogc.backoff import Backoff
from oplogc.events import Checkpoint, Event, Operation, position_of
from oplogc.state_file import Saver, read_position
from oplogc.stream import DisconnectedError, Stream, basic_auth, open_stream, shown, stream_url

Callback = Callable[[Any], Awaitable[None] | None]
_C = TypeVar("_C", bound=Callback)
_log = logging.getLogger("oplogc")


class Consumer:
    """Operations, ``Reset`` and ``Live`` from an agent, with ``async for``, with ``for``, or with callbacks.

    It reconnects by itself and goes on where it was, so that nothing is lost; an operation may come twice in a replication
    or after a crash. Iterate in one way, from one thread; ``ack`` and ``stop`` may be called from any.

    - ``types``, ``parents``: only operations of these types, with one of these parents. Empty: all.
    - ``start``: where to begin: ``"0"`` for a full copy of all objects, an event id, or a time (with its time zone) from
      which on changed objects are wanted. None: with the next operation.
    - ``state_file``: keeps the position; what it holds comes before ``start``. Then every event must be acknowledged with
      ``ack``, ``Reset`` and ``Live`` too: the position saved is that of the oldest event that is not. At most
      ``max_unacked`` events are handed out without an acknowledgement; then iteration waits for one.
    - ``password``: the agent's. ``proxy``: the URL of an HTTP proxy; else the environment's (``HTTPS_PROXY`` ...).
    - ``timeout``: seconds that connecting may take. ``heartbeat_timeout``: seconds of silence after which a connection
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
        self._url = stream_url(url, types, parents)
        self._auth = basic_auth(password)
        self._proxy = proxy
        self._timeout = httpx.Timeout(timeout, read=heartbeat_timeout)
        self._backoff = Backoff(*backoff)
        self._max_unacked = max_unacked
        position = position_of(start) if start is not None else ""
        self._saver: Saver | None = None
        self._path = Path(state_file) if state_file is not None else None
        if self._path is not None:
            position = read_position(self._path) or position
        self._save_interval = save_interval
        self._acks = Acks(position)
        self._last_event_id = position
        self._sequence = count(1)
        self._pending: deque[Event | Checkpoint] = deque()
        self._connection: AsyncExitStack | None = None
        self._stream: Stream | None = None
        self._client: httpx.AsyncClient | None = None
        self._stopped = threading.Event()
        self._alarm: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._callbacks: dict[str, Callback] = {}
        self.connections = 0
        """How often a stream was opened."""

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
        if self._path is None:
            return
        if self._acks.ack(event.sequence) and self._saver is not None:
            self._saver.changed()
        self._wake()

    def stop(self) -> None:
        """End the iteration: from any thread, a callback or a signal handler."""
        self._stopped.set()
        self._wake()

    # Asynchronous use

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._stopped.is_set():
                raise StopAsyncIteration
            if self._pending and self._has_room():
                item = self._pending.popleft()
                if not isinstance(item, Checkpoint):
                    return self._hand_out(item)
                self._pass(item)
            else:
                await self._more()

    async def aclose(self) -> None:
        """Close the connection and save the position. Raises StateFileError."""
        await self._close_network()
        if self._saver is not None:
            saver, self._saver = self._saver, None
            await asyncio.to_thread(saver.close)

    # Blocking use

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        with asyncio.Runner() as runner:
            try:
                while True:
                    # The event loop runs only to wait for the network: events at hand cost no turn of it.
                    while self._pending and self._has_room() and not self._stopped.is_set():
                        item = self._pending.popleft()
                        if isinstance(item, Checkpoint):
                            self._pass(item)
                        else:
                            yield self._hand_out(item)
                    if self._stopped.is_set():
                        return
                    runner.run(self._more())
            finally:
                runner.run(self._close_network())

    def close(self) -> None:
        """Save the position. Raises StateFileError."""
        if self._saver is not None:
            saver, self._saver = self._saver, None
            saver.close()

    # Callbacks

    def on(self, *names: str) -> Callable[[_C], _C]:
        """Decorate a function, plain or async, that takes operations of these types (without a name: all others).

        ``reset`` and ``live`` name those two events. ``run`` acknowledges an event when its callback has returned; those
        without a callback at once. An exception of a callback ends ``run`` with its event not acknowledged.
        """

        def register(callback: _C) -> _C:
            for name in names or ("",):
                if name in self._callbacks:
                    raise ValueError(f"there is a callback for {name or 'all others'} already")
                self._callbacks[name] = callback
            return callback

        return register

    async def run_async(self) -> None:
        """Call the callbacks, one after another, until ``stop``. Raises what they raise, and what iterating raises."""
        async with self:
            async for event in self:
                if callback := self._callback(event):
                    result = callback(event)
                    if isawaitable(result):
                        await result
                self.ack(event)

    def run(self) -> None:
        """``run_async`` for a program without an event loop."""
        asyncio.run(self.run_async())

    def _callback(self, event: Event) -> Callback | None:
        if isinstance(event, Operation):
            return self._callbacks.get(event.type) or self._callbacks.get("")
        return self._callbacks.get(event.event)

    # What follows is common to all of them

    def _has_room(self) -> bool:
        return self._path is None or self._acks.unacked < self._max_unacked

    def _hand_out(self, event: Event) -> Event:
        if self._path is None:
            self._acks.position = event.event_id
        else:
            self._acks.handed_out(event.sequence, event.event_id)
        return event

    def _pass(self, checkpoint: Checkpoint) -> None:
        self._acks.passed(checkpoint.sequence, checkpoint.event_id)
        if self._saver is not None:
            self._saver.changed()

    async def _more(self) -> None:
        """Wait until there is something pending that may be handed out, or until ``stop``."""
        loop = asyncio.get_running_loop()
        self._alarm = (loop, asyncio.Event())
        try:
            if self._stopped.is_set():
                return
            if self._pending:
                if not self._has_room():
                    _log.warning("%d events are not acknowledged: waiting", self._acks.unacked)
                    await self._alarm[1].wait()  # for `ack` or `stop`
                return
            if self._path is not None and self._saver is None:
                self._saver = Saver(self._path, lambda: self._acks.position, self._save_interval)
                self._saver.changed()
            await self._unless_stopped(self._receive(), self._alarm[1])
        finally:
            self._alarm = None

    async def _unless_stopped(self, work: Coroutine[Any, Any, None], alarm: asyncio.Event) -> None:
        receiving = asyncio.create_task(work)
        receiving.add_done_callback(lambda _: alarm.set())
        try:
            while not receiving.done() and not self._stopped.is_set():
                await alarm.wait()
                alarm.clear()
        finally:
            if not receiving.done():
                receiving.cancel()
                await asyncio.wait({receiving})
        if not receiving.cancelled():
            receiving.result()

    def _wake(self) -> None:
        alarm = self._alarm
        if alarm is not None:
            loop, event = alarm
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # the loop has ended meanwhile
                return

    async def _receive(self) -> None:
        """Wait for the next events, through as many connections as it takes. Raises RefusedError, ProtocolError."""
        while not self._pending:
            try:
                if self._stream is None:
                    self._stream = await self._connect()
                items = await self._stream.read()
            except DisconnectedError as error:
                await self._disconnect()
                delay = self._backoff.next(error.retry_after)
                _log.warning("%s: %s; trying again in %.1f s", shown(self._url), error, delay)
                await asyncio.sleep(delay)
                continue
            except BaseException:
                await self._disconnect()
                raise
            if items:
                self._backoff.reset()
                self._pending.extend(items)
                self._last_event_id = items[-1].event_id

    async def _connect(self) -> Stream:
        if self._client is None:
            self._client = httpx.AsyncClient(auth=self._auth, proxy=self._proxy, timeout=self._timeout)
        connection = AsyncExitStack()
        stream = await connection.enter_async_context(
            open_stream(self._client, self._url, self._last_event_id, self._sequence)
        )
        self._connection = connection
        self.connections += 1
        _log.info("following %s", shown(self._url))
        return stream

    async def _disconnect(self) -> None:
        self._stream = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.aclose()

    async def _close_network(self) -> None:
        await self._disconnect()
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()
