"""Following a stream: reconnecting, handing out events one by one, keeping the position."""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self

from oplogc.follow.acks import Acks
from oplogc.follow.format import E, StreamFormat
from oplogc.follow.receiver import Reader, Receiver
from oplogc.follow.state_file import Saver, StateFile
from oplogc.follow.stream import DisconnectedError
from oplogc.follow.wake_up import WakeUp, check_no_loop
from oplogc.http.address import Endpoint, check_proxy
from oplogc.http.answers import password_problem
from oplogc.http.backoff import Backoff
from oplogc.http.token import TokenSource
from oplogc.wire.errors import OplogError
from oplogc.wire.events import Checkpoint

logger = logging.getLogger("oplogc")


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Arguments of all consumers, whatever the kind of events. Raises ValueError."""

    state_file: str | Path | None
    proxy: str | None
    timeout: float
    heartbeat_timeout: float
    backoff: tuple[float, float]
    save_interval: float
    max_unacked: int

    def __post_init__(self) -> None:
        check_proxy(self.proxy)
        if not (self.timeout > 0 and self.heartbeat_timeout > 0):
            raise ValueError("timeout and heartbeat_timeout: give seconds, more than 0")
        if self.max_unacked < 1:
            raise ValueError("max_unacked must be at least 1")
        if not self.save_interval >= 0:
            raise ValueError("save_interval: give seconds, 0 or more")


class Following(Generic[E]):
    """The part of a consumer without the kind of its events.

    ``endpoints``: the stream of each agent. ``position``: where to start. Empty: with the next
    event. ``reader``: see ``Receiver``. The errors raised are those of ``Consumer``.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        stream_format: StreamFormat[E],
        position: str,
        options: FollowOptions,
        reader: Reader | None = None,
    ) -> None:
        waits = Backoff(*options.backoff)
        is_authorized = any(each.auth is not None for each in endpoints)
        token = next((each.auth for each in endpoints if isinstance(each.auth, TokenSource)), None)

        def refused(status: int, detail: str) -> OplogError:
            if status == 401:
                detail = password_problem(detail, is_authorized, "password", token is not None)
                if token is not None and token.is_function:
                    return DisconnectedError(f"{detail} (HTTP 401)")
            return stream_format.refused(status, detail)

        self._max_unacked = options.max_unacked
        self._save_interval = options.save_interval
        self._file: StateFile | None = None
        self._saver: Saver | None = None
        if options.state_file is not None:
            self._file = StateFile(
                options.state_file, stream_format.positions, stream_format.isolation
            )
            position = self._file.position or position
        self._acks = Acks(position)
        self._receiver = Receiver(
            endpoints,
            dataclasses.replace(stream_format, refused=refused),
            options.proxy,
            options.timeout,
            options.heartbeat_timeout,
            waits,
            position,
            reader=reader,
        )
        self._pending: deque[E | Checkpoint] = deque()
        self._stopped = False
        self._closings = 0
        self._warned_of_unacked = False
        self._wake_up = WakeUp()

    @property
    def connections(self) -> int:
        """Number of streams opened so far."""
        return self._receiver.connections

    @property
    def position(self) -> str:
        """The position from which a new consumer loses nothing. Empty before the first one.

        With a state file: before the oldest unacknowledged event. Else: after the last event.
        """
        return self._acks.position

    def ack(self, event: E) -> None:
        """Acknowledge an event as handled: in any order, from any thread.

        Only needed with a state file. Raises ValueError for an event of another consumer.
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

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        """Return the next event. A cancelled call loses no event and keeps the connection."""
        closings = self._closings
        while not self._stopped and self._closings == closings:
            if (event := self._next()) is not None:
                return event
            await self._more()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close the connection, save the position, end the iteration. Raises StateFileError."""
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Generator[E]:
        check_no_loop("async for")
        with asyncio.Runner() as runner:
            try:
                # The event loop only runs to wait for the network, not for pending events.
                while not self._stopped:
                    if (event := self._next()) is not None:
                        yield event
                    else:
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

    # Parts common to all uses

    def _has_room(self) -> bool:
        return self._file is None or self._acks.unacked < self._max_unacked

    def _next(self) -> E | None:
        """Hand out the next pending event. None: wait with ``_more``."""
        while self._pending and self._has_room():
            item = self._pending.popleft()
            if isinstance(item, Checkpoint):
                self._passed(item.event_id)
                continue
            if self._file is None:
                self._acks.position = item.event_id
            else:
                self._acks.handed_out(item.sequence, item.event_id)
            return item
        return None

    def _passed(self, event_id: str) -> None:
        """Note a position of the stream without an event."""
        self._acks.passed(event_id)
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
        self, receiving: "asyncio.Task[list[E | Checkpoint]]", woken: asyncio.Event
    ) -> None:
        """Wait until ``receiving`` ends, or until ``stop``. It goes on after a cancellation."""

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
        self._warn_of_unacked()
        if not self._has_room():
            await woken.wait()  # for `ack` or `stop`

    def _warn_of_unacked(self) -> None:
        if not self._warned_of_unacked:  # once until there is room again
            self._warned_of_unacked = True
            logger.warning("%d events are not acknowledged: waiting", self._acks.unacked)
