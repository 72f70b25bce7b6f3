"""One connected consumer: its phase, its heartbeats and its end."""

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from oplogd.clock import Clock
from oplogd.errors import TopicNotFoundError
from oplogd.model.names import TopicName
from oplogd.stream.consumer_connection import NOT_CONNECTED, Connection
from oplogd.stream.passes import FOR_EVER, Pass
from oplogd.stream.phases.catch_up import CatchUp, Expansion, StorePhase
from oplogd.stream.phases.oplog_bridge import Replication
from oplogd.stream.phases.phase import Lag, LivePhase, LogPhase, Phase, Step, Subscription
from oplogd.stream.ring.frames import HEARTBEAT, held_comment
from oplogd.stream.ring.postings import Waiter
from oplogd.stream.ring.view import View


@dataclass(eq=False, slots=True)
class StreamConsumer:
    """``take`` has one caller. Call ``close`` after the last ``take``.

    No task belongs to a consumer that waits. A step that asks the store is a task of its own, so
    that heartbeats are sent meanwhile.
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
    # The term of a named consumer's reader; 0: of another consumer.
    term: int = 0
    pass_: Pass = FOR_EVER
    # Monotonic time since when the pass is over; ``inf``: it is not.
    pass_ended_at: float = math.inf
    connection: Connection = NOT_CONNECTED
    ending: bool = False
    # Whether ``take`` or ``pause`` waits for ``wake``.
    is_asleep: bool = False
    _has_caught_up: bool = False
    # The pointer holding the consumer, and the monotonic time since when.
    _hold: tuple[int, float] | None = None
    # The consumers of a view or a hold, with this one among them while it waits for entries.
    _waiting: dict[Waiter, None] | None = None
    # Wakes the consumer after ``pause``.
    _timer: asyncio.TimerHandle | None = None
    # The step that asks the store, until its result is taken.
    _asking: asyncio.Task[Step] | None = None

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

    def take(self) -> bytes | None:
        """Return the next bytes to send: empty when the stream is over, None if there are none yet.

        After None, and after bytes with which the consumer ``is_asleep``, ``connection.go_on`` is
        called when it is time for the next call. Raises StoreUnavailableError; then call ``pause``.
        """
        self._stop_waiting()
        while not self.ending:
            chunk = self._next()
            if not chunk and self._beat_is_due():
                chunk = self._beat()
            if chunk:
                self.last_write = self.clock.monotonic()
                phase = self.phase
                if isinstance(phase, LivePhase) and phase.is_done and not self._owes_checkpoint:
                    self.is_asleep = True
                    self.sleep()
                return chunk
            if chunk is None:
                self.is_asleep = True
                return None
        return b""

    def tick(self, now: float) -> bool:
        """Return whether to wake the consumer for its heartbeat or its end.

        Call it about once per second with the monotonic time. A full connection looks later.
        """
        self.ending = self.ending or now >= self.ends_at
        return not self.connection.is_full and (
            self.ending or now - self.last_write >= self.heartbeat
        )

    def end(self) -> None:
        self.ending = True
        self.ends_at = min(self.ends_at, self.clock.monotonic())
        asyncio.get_running_loop().call_soon(self.wake)

    def end_without_pass(self, at: float) -> None:
        """End the stream at a monotonic time, because its pass is over then."""
        self.ends_at = min(self.ends_at, at)
        self.pass_ended_at = min(self.pass_ended_at, at)

    def close(self) -> None:
        """Stop waiting, and cancel the step that asks the store."""
        self._stop_waiting()
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    def wake(self) -> None:
        """Let the connection go on now if the consumer is asleep."""
        if self.is_asleep:
            self.is_asleep = False
            self.connection.go_on()

    def sleep(self) -> None:
        """Wait until the ring has a new entry for this consumer.

        A held consumer waits for the end of its hold instead.
        """
        assert isinstance(self.phase, LogPhase)
        self._note_hold()
        self._waiting = (self.phase.present_hold or self.phase.view).waiting
        self._waiting[self] = None

    def pause(self, seconds: float) -> None:
        """Wait while the store is unreachable."""
        self.is_asleep = True
        self._timer = asyncio.get_running_loop().call_later(seconds, self.wake)

    def _stop_waiting(self) -> None:
        self.is_asleep = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.pop(self, None)
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _next(self) -> bytes | None:
        """Return the next bytes, empty if the next call may have some, None if it must wait."""
        phase = self.phase
        if self._asking is not None:
            return self._ask_store()
        if isinstance(phase, LivePhase):
            chunk = phase.next_chunk()
            if chunk is not None:
                return chunk or self._wait_for_entries(phase)
        if isinstance(phase, StorePhase) and phase.present_hold is not None:
            phase.look_again()
            if phase.present_hold is None:
                return b""
            if not self._beat_is_due():
                self.sleep()
            return None
        return self._ask_store()

    def _ask_store(self) -> bytes | None:
        """Return the chunk of a step, None while the store has not answered."""
        asking = self._asking
        if asking is None:
            step = self._next_step()
            if step is None:
                return b""
            asking = asyncio.create_task(step, name=f"consumer {self.id} asks the store")
            asking.add_done_callback(self._on_answer)
            self._asking = asking
        if not asking.done():
            return None
        self._asking = None
        try:
            chunk, self.phase = asking.result()
        except TopicNotFoundError:
            self.ending = True
            return b""
        return chunk

    def _on_answer(self, asked: asyncio.Task[Step]) -> None:
        if asked.cancelled():  # by ``close``, or at the end of the event loop
            return
        asked.exception()  # else asyncio logs it after the consumer has gone
        self.wake()

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

    def _wait_for_entries(self, live: LivePhase) -> bytes | None:
        """Return a checkpoint when a filtered stream has caught up: no operation says so."""
        if not live.is_at_end():  # nothing passes in a long piece of the ring
            asyncio.get_running_loop().call_soon(self.wake)
        elif self._owes_checkpoint:
            self._has_caught_up = True
            return live.checkpoint()
        elif not self._beat_is_due():
            self.sleep()
        return None

    @property
    def _owes_checkpoint(self) -> bool:
        """Whether the stream is filtered and has not told yet that it has caught up."""
        return not self._has_caught_up and self.checkpoints and bool(self.view.postings)

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
