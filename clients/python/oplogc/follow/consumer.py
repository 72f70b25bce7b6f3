"""The consumer: follows an agent, reconnects and keeps its position."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from inspect import isawaitable
from pathlib import Path
from typing import TypeVar

from oplogc.follow.callbacks import Callback, Callbacks
from oplogc.follow.following import Following, FollowOptions
from oplogc.follow.format import StreamFormat
from oplogc.follow.wake_up import check_no_loop
from oplogc.http.address import stream_endpoint
from oplogc.http.backoff import BACKOFF
from oplogc.http.token import Token, token_source
from oplogc.wire.errors import RefusedError
from oplogc.wire.events import POSITION, Event, is_known, position_of, read
from oplogc.wire.sse import MAX_BLOCK_BYTES

_C = TypeVar("_C", bound=Callback)
_FORMAT: StreamFormat[Event] = StreamFormat(read, is_known, RefusedError, POSITION, MAX_BLOCK_BYTES)


class Consumer(Following[Event]):
    """Follow an agent with ``async for``, ``for`` or callbacks: operations, ``Reset``, ``Live``.

    A consumer reconnects by itself and resumes where it was. No operation is lost. One may come
    twice in a replication or after a crash. Iterate in one way and from one thread. Any thread may
    call ``ack`` and ``stop``.

    - ``types``, ``parents``, ``ids``, ``events``: receive only operations of these types, with one
      of these parents, on objects with one of these ids, and only ``insert``, ``update`` or
      ``delete``. Empty: all. In a copy a live object counts as an insert and an update.
    - ``shard``: ``"3/8"`` for shard 3 of 8, from 0 to 7. All operations of an object are in the
      same shard. None: receive all.
    - ``start``: ``"0"`` for a copy of all objects, an event id, or a time with a zone to begin with
      the objects changed since then. None: begin with the next operation.
    - ``name``: of this consumer in the agent's ``/status`` and ``/metrics``: 1 to 100 ASCII
      letters, digits, ``.``, ``_`` or ``-``. Several consumers may share it.
    - ``state_file``: keeps the position. A position in it overrides ``start``. Every event must
      then be acknowledged with ``ack``, ``Reset`` and ``Live`` too: the saved position is before
      the oldest unacknowledged event. Iteration waits while ``max_unacked`` events are
      unacknowledged. The consumer locks the file until it is closed.
    - ``password``: overrides user and password of the URL. ``token``: instead of a password. Or a
      function, plain or async, that returns a fresh token. It is called before each connection. If
      it fails, or the agent refuses its token, the consumer tries again like after a lost
      connection. ``proxy``: URL of an HTTP proxy. None: the environment's.
    - ``timeout``: seconds until the agent must have answered. ``heartbeat_timeout``: seconds of
      silence until a connection counts as dead. Agents send something at least every 25 s.
    - ``backoff``: first and longest pause between attempts in seconds; pauses double, with jitter.
    - ``save_interval``: seconds between two writes of the state file. Events acknowledged since the
      last write come again after a crash.

    Raises ValueError for a bad argument and StateFileError for an unusable state file.
    Iterating raises RefusedError if the agent refuses for good (a wrong password), ProtocolError if
    the address is no agent or an agent too old for ``shard``, and StateFileError at the end if the
    position could not be saved.
    """

    def __init__(
        self,
        url: str = "http://localhost:8042",
        *,
        types: Sequence[str] = (),
        parents: Sequence[str] = (),
        ids: Sequence[str] = (),
        events: Sequence[str] = (),
        shard: str | None = None,
        start: str | datetime | None = None,
        name: str | None = None,
        state_file: str | Path | None = None,
        password: str | None = None,
        token: Token | None = None,
        proxy: str | None = None,
        timeout: float = 10.0,
        heartbeat_timeout: float = 40.0,
        backoff: tuple[float, float] = BACKOFF,
        save_interval: float = 1.0,
        max_unacked: int = 10_000,
    ) -> None:
        filters = {"types": types, "parents": parents, "ids": ids, "events": events}
        for filter_, values in filters.items():
            if isinstance(values, str) or not all(values):
                raise ValueError(f"{filter_}: give a list of names, none of them empty")
        source = token_source(token, password=password)
        options = FollowOptions(
            state_file, proxy, timeout, heartbeat_timeout, backoff, save_interval, max_unacked
        )
        endpoint = stream_endpoint(
            url, password, types, parents, name, source, ids=ids, events=events, shard=shard
        )
        super().__init__(
            [endpoint],
            _FORMAT,
            position_of(start) if start is not None else "",
            options,
        )
        self._callbacks = Callbacks()

    def on(self, *types: str) -> Callable[[_C], _C]:
        """Register a function, plain or async, for operations of these types, or of all others.

        ``run`` acknowledges an event when its callback has returned, and at once if it has no
        callback. An exception of a callback ends ``run``, and its event stays unacknowledged.
        """
        return self._callbacks.on(*types)

    def on_reset(self, callback: _C) -> _C:
        """Register a function, plain or async, for ``Reset``."""
        return self._callbacks.on_event("reset", callback)

    def on_live(self, callback: _C) -> _C:
        """Register a function, plain or async, for ``Live``."""
        return self._callbacks.on_event("live", callback)

    async def run_async(self) -> None:
        """Call the callbacks until ``stop``. Raises their exceptions and those of iterating."""
        self._callbacks.warn_of_old_names()
        async with self:
            async for event in self:
                if callback := self._callbacks.of(event):
                    result = callback(event)
                    if isawaitable(result):
                        await result
                self.ack(event)

    def run(self) -> None:
        """Do as ``run_async``, without an event loop of the program."""
        check_no_loop("run_async")
        asyncio.run(self.run_async())
