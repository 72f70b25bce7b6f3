"""One connected consumer: its phase, its heartbeats and its end."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from oplogd.clock import Clock
from oplogd.errors import TopicNotFoundError
from oplogd.model.names import TopicName
from oplogd.stream.phases.catch_up import CatchUp, Expansion, StorePhase
from oplogd.stream.phases.oplog_bridge import Replication
from oplogd.stream.phases.phase import Lag, LivePhase, LogPhase, Phase, Step, Subscription
from oplogd.stream.ring.frames import HEARTBEAT, held_comment
from oplogd.stream.ring.view import View


@dataclass(eq=False, slots=True)
class StreamConnection:
    """``writing``: a write is under way. It waits while the server's buffer is full.

    ``_abort`` cuts the connection off; None: it cannot be cut off. ``_unsent`` returns the number
    of bytes in the server's buffer.
    """

    _abort: Callable[[], None] | None = None
    _unsent: Callable[[], int] | None = None
    writing: bool = field(default=False, init=False)
    _seen: tuple[float, int] | None = field(default=None, init=False)
    _since: float = field(default=0.0, init=False)

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> Self:
        """Use the extensions ``oplog.abort`` and ``oplog.unsent`` of an ASGI scope, if present."""
        extensions = scope.get("extensions") or {}
        return cls(extensions.get("oplog.abort"), extensions.get("oplog.unsent"))

    def stalled_seconds(self, now: float, last_write: float) -> float:
        """Return for how many seconds the write begun at ``last_write`` has sent no byte.

        Bytes sent between two calls are noticed at the second one. Times are monotonic.
        """
        if not self.writing:
            self._seen = None
            return 0.0
        seen = (last_write, self._unsent() if self._unsent else 0)
        if seen != self._seen:
            self._seen = seen
            self._since = now
        return now - self._since

    def abort(self) -> bool:
        """Cut the connection off. Return whether this call did."""
        abort, self._abort = self._abort, None
        if abort is None:
            return False
        abort()
        return True


@dataclass(eq=False)
class StreamConsumer:
    """``next_chunk`` has one caller. Call ``close`` after the last ``next_chunk``.

    A step that asks the store is a task of its own, so that heartbeats are sent meanwhile.
    """

    id: int
    address: str
    subscription: Subscription
    phase: Phase
    # Seconds of silence after which a heartbeat is due.
    heartbeat: float
    # Whether the stream carries checkpoints.
    checkpoints: bool
    # Monotonic time at which the stream is ended; ``inf``: never.
    ends_at: float
    clock: Clock
    # Seconds since 1970.
    connected_at: float
    # Monotonic time of the last write, at first of the connection.
    last_write: float
    # The consumer's own name for itself; empty without one.
    name: str = ""
    connection: StreamConnection = field(default_factory=StreamConnection)
    ending: bool = False
    _has_caught_up: bool = False
    # The pointer holding the consumer, and the monotonic time since when.
    _hold: tuple[int, float] | None = None
    _waiter: asyncio.Future[None] | None = None
    # The step that asks the store, until its result is taken.
    _asking: asyncio.Task[Step] | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    @property
    def view(self) -> View:
        return self.subscription.view

    @property
    def topic(self) -> TopicName:
        return self.subscription.feed.name

    @property
    def sent(self) -> int:
        """Events sent."""
        return self.subscription.sent

    @property
    def held_by(self) -> int | None:
        """The pointer for whose decision the consumer waits; None if it waits for none."""
        hold = self.phase.present_hold if isinstance(self.phase, LogPhase) else None
        return None if hold is None else hold.pointer

    def lag(self) -> Lag:
        return self.phase.lag()

    async def next_chunk(self) -> bytes:
        """Return the next bytes to send; empty when the stream is over.

        Raises StoreUnavailableError; then call it again.
        """
        while not self.ending:
            phase = self.phase
            if self._asking is None and isinstance(phase, LivePhase) and phase.is_ready():
                chunk = phase.next_chunk() or await self._wait_for_entries(phase)
            elif isinstance(phase, StorePhase) and phase.present_hold is not None:
                chunk = b""
                if not self._beat_is_due():
                    await self.sleep()
                phase.look_again()
            else:
                chunk = await self._ask_store()
            if not chunk and self._beat_is_due():
                chunk = self._beat()
            if chunk:
                self.last_write = self.clock.monotonic()
                return chunk
        return b""

    def tick(self, now: float) -> bool:
        """Return whether to wake the consumer for its heartbeat or its end.

        Call it about once per second with the monotonic time. A pending write looks at both itself.
        """
        self.ending = self.ending or now >= self.ends_at
        return not self.connection.writing and (
            self.ending or now - self.last_write >= self.heartbeat
        )

    def end(self) -> None:
        self.ending = True
        self.ends_at = min(self.ends_at, self.clock.monotonic())
        self.wake()

    def close(self) -> None:
        """Cancel the step that asks the store."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    @property
    def is_asleep(self) -> bool:
        """Whether ``next_chunk`` or ``pause`` waits for ``wake``."""
        return self._waiter is not None and not self._waiter.done()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def sleep(self) -> None:
        """Wait until the ring has a new entry for this consumer, or ``wake`` is called.

        A held consumer waits for the end of its hold instead.
        """
        assert isinstance(self.phase, LogPhase)
        self._note_hold()
        waiting = (self.phase.present_hold or self.phase.view).waiting
        self._waiter = self._loop.create_future()
        waiting[self] = None
        try:
            await self._waiter
        finally:
            waiting.pop(self, None)

    async def pause(self, seconds: float) -> bytes:
        """Wait while the store is unreachable; return a heartbeat if one is due, else nothing."""
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
        if not self._beat_is_due():
            return b""
        self.last_write = self.clock.monotonic()
        return HEARTBEAT

    async def _ask_store(self) -> bytes:
        """Return the chunk of a step; empty if the consumer is woken before the store answers."""
        asking = self._asking
        if asking is None:
            step = self._next_step()
            if step is None:
                return b""
            asking = asyncio.create_task(step, name=f"consumer {self.id} asks the store")
            asking.add_done_callback(_ignore_error)
            self._asking = asking
        if not asking.done():
            self._waiter = self._loop.create_future()
            asking.add_done_callback(self._wake_after)
            try:
                await self._waiter
            finally:
                asking.remove_done_callback(self._wake_after)
        if not asking.done():
            return b""
        self._asking = None
        try:
            chunk, self.phase = asking.result()
        except TopicNotFoundError:
            self.ending = True
            return b""
        return chunk

    def _next_step(self) -> Coroutine[Any, Any, Step] | None:
        """Choose the next phase. Return its next step, None if it is live and ready."""
        phase = self.phase
        if isinstance(phase, Replication):
            return phase.next_step()
        assert isinstance(phase, LogPhase)
        if phase.epoch != phase.ring.epoch:
            return self.subscription.feed.bridge.resume(phase)
        if isinstance(phase, Expansion):
            return phase.next_step()
        if phase.view.covers(phase.mark.offset):
            records = phase.view.expansion_after(phase.mark.offset)
            if records is not None:
                window = phase.ring.window
                mark = window.mark(window.after(phase.mark.offset))
                phase = self.phase = Expansion(
                    self.subscription, mark, phase.epoch, after=-1, left=records
                )
                return phase.next_step()
            self.phase = LivePhase.following(phase)
            return None
        if not isinstance(phase, CatchUp):
            self.subscription.counters.to_store += 1
            phase = self.phase = CatchUp.following(phase)
        return phase.next_step()

    def _wake_after(self, _: asyncio.Task[Step]) -> None:
        self.wake()

    async def _wait_for_entries(self, live: LivePhase) -> bytes:
        """Return a checkpoint when a filtered stream has caught up: no operation says so."""
        if not live.is_at_end():  # nothing passes in a long piece of the ring
            await asyncio.sleep(0)
        elif self.checkpoints and self.view.postings and not self._has_caught_up:
            self._has_caught_up = True
            return live.checkpoint()
        elif not self._beat_is_due():
            await self.sleep()
        return b""

    def _beat(self) -> bytes:
        """Return a heartbeat, with a checkpoint if the consumer wants one and the phase has one.

        A held consumer's heartbeat names the pointer holding it.
        """
        beat = HEARTBEAT
        if (hold := self._note_hold()) is not None:
            pointer, since = hold
            beat = held_comment(pointer, self.topic, self.clock.monotonic() - since)
        if self._asking or not self.checkpoints:
            return beat
        return beat + self.phase.checkpoint()

    def _note_hold(self) -> tuple[int, float] | None:
        """Return the pointer holding the consumer and the time since when, None if none does."""
        pointer = self.held_by
        if pointer is None:
            self._hold = None
        elif self._hold is None or self._hold[0] != pointer:
            self._hold = pointer, self.clock.monotonic()
        return self._hold

    def _beat_is_due(self) -> bool:
        return self.clock.monotonic() - self.last_write >= self.heartbeat


def _ignore_error(asked: asyncio.Task[Step]) -> None:
    """Retrieve the error of a step, so that asyncio does not log it after the consumer has gone."""
    if not asked.cancelled():
        asked.exception()
