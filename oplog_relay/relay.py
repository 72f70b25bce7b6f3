"""The relay: leads its group or waits for the lead, and moves the rows of the outbox."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self
from uuid import UUID, uuid4

from oplog_relay.leader.blocked import BlockedKeys
from oplog_relay.leader.leadership import Leadership, Standing, boot_time
from oplog_relay.leader.opening import check_table, close_binding, first_of, open_bindings
from oplog_relay.leader.poller import Poller
from oplog_relay.leader.rivals import Rivals
from oplog_relay.leader.term import GRACE_S, Cause, End, Term, Tools
from oplog_relay.model.bindings import Bindings, LeaseClient, Outbox, Publisher
from oplog_relay.model.errors import ConfigError, LeaseUnavailableError
from oplog_relay.model.events import (
    Handler,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
)
from oplog_relay.model.place import Place
from oplog_relay.model.settings import RelaySettings
from oplog_relay.model.state import Blocked, Counters, State
from oplog_relay.watch.dispatch import Dispatcher
from oplog_relay.watch.meter import Meter
from oplog_relay.watch.progress import is_told

_log = logging.getLogger("oplog_relay")

# A series of failures ends after this time without one.
_SERIES_S = 60.0
# Longest pause that an agent may ask for.
_MAX_RETRY_AFTER_S = 30.0


class Relay:
    """A relay. Runs in the event loop that calls ``start``.

    ``outbox``, ``lease``, ``publisher``: bindings of your own, instead of those that the settings
    name. The relay closes them when it stops. ``wrap``: puts others around all of them, such as
    ``Metrics.measured``. ``clock``: seconds; must not stand still while the machine sleeps.
    """

    def __init__(
        self,
        settings: RelaySettings,
        *,
        outbox: Outbox | None = None,
        lease: LeaseClient | None = None,
        publisher: Publisher | None = None,
        wrap: Callable[[Bindings], Bindings] | None = None,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self.settings = settings
        self.counters = Counters()
        self._limits = settings.limits
        self._host = socket.gethostname()
        self._holder = f"{self._host[:200]}:{os.getpid()}:{uuid4().hex[:8]}"
        self._bindings = outbox, lease, publisher
        self._wrap = wrap
        self._clock = clock
        self._state = State.CREATED
        self._dispatcher = Dispatcher()
        self._leadership = Leadership(settings.limits)
        self._defeats = 0
        self._blocked_keys = BlockedKeys(settings.limits.blocked_backoff)
        self._leader_id: UUID | None = None
        self._number = 0
        self._unfinished = 0
        self._term: Term | None = None
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._error: BaseException | None = None
        self._rivals = Rivals(settings, lambda: self.is_leader)
        self._meter = Meter(self, self._host, settings.limits.meter, clock, self._publish_reading)

    async def start(self) -> None:
        """Begin to poll the lease.

        Raises ConfigError, also for a table that does not fit the settings, and RuntimeError after
        an earlier start. A database that cannot be reached is tried again later.
        """
        if self._state is not State.CREATED:
            raise RuntimeError("a relay starts once")
        bindings = open_bindings(self.settings, self._holder, *self._bindings)
        self._state = State.RUNNING
        self._running = asyncio.create_task(self._run(bindings), name="oplog relay")
        try:
            await self._started.wait()
        except asyncio.CancelledError:
            self._running.cancel()
            raise
        if isinstance(self._error, ConfigError):
            await self.wait()

    async def stop(self) -> None:
        """Drain, hand the lead over, and close the bindings. A repeated call waits for the first.

        Called by a handler of events, it does not wait: the relay waits for its handlers.
        """
        if self._state is State.CREATED:
            self._state = State.STOPPED
            self._stopped.set()
        self._stopping.set()
        self._news.set()
        if self._state is State.RUNNING:
            self._state = State.STOPPING
            if self._term is not None:
                self._term.end(End(Cause.STOPPED))
        if not self._dispatcher.is_handling():
            await self._stopped.wait()

    async def wait(self) -> None:
        """Wait until the relay has stopped. Raises the error that ended it."""
        await self._stopped.wait()
        if self._error is not None:
            raise self._error

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def on_event(self, handler: Handler) -> None:
        """Call a handler with every later event. Handlers run one after the other, in order.

        A handler that awaits for longer than 30 s is cancelled. If it holds up the lead, this relay
        gives the lead up.
        """
        self._dispatcher.handlers.append(handler)

    @property
    def state(self) -> State:
        return self._state

    @property
    def holder(self) -> str:
        """The name of this relay as the holder of its lease: host, process and a random part."""
        return self._holder

    @property
    def is_leader(self) -> bool:
        return self._leader_id is not None

    @property
    def leader_id(self) -> UUID | None:
        """The leader id of the present term; None: another relay leads, or none."""
        return self._leader_id

    @property
    def term(self) -> int:
        """The present term; 0: another relay leads, or none."""
        return self._number if self._leader_id is not None else 0

    @property
    def in_flight(self) -> int:
        """Rows that are marked and not yet purged, without those of blocked keys."""
        return self._term.flow.in_flight if self._term is not None else 0

    @property
    def unfinished(self) -> int:
        """Rows of the last term that may have arrived and are still in the outbox.

        0 while a term lasts, after a loss of the lead, and after a stop that has finished all.
        """
        return self._unfinished

    @property
    def in_flight_keys(self) -> int:
        """Keys of these rows."""
        return self._term.flow.in_flight_keys if self._term is not None else 0

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """The blocked keys, oldest first."""
        return self._blocked_keys.rows() if self._term is not None else ()

    @property
    def place(self) -> Place:
        """The outbox, as the note of the lease names it."""
        return self._rivals.place

    # Life

    async def _run(self, bindings: Bindings) -> None:
        """Own all tasks. An error of one of them ends the others."""
        outbox, lease, publisher = bindings if self._wrap is None else self._wrap(bindings)
        try:
            await check_table(bindings.outbox)
            self._started.set()
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(self._rivals.run(bindings), name="oplog relay: rivals")
                await self._work(group, outbox, lease, publisher)
                looking.cancel()
        except ConfigError as error:
            self._error = error
        except BaseExceptionGroup as errors:
            self._error = first_of(errors)
            _log.error("the relay stops because of an error", exc_info=self._error)
        finally:
            self._leader_id = None
            self._term = None
            self._blocked_keys.new_term()
            for name, close in (
                ("database", outbox.dispose()),
                ("lease", lease.close()),
                ("publisher", publisher.close()),
            ):
                await close_binding(name, close)
            self._state = State.STOPPED
            self._started.set()
            self._stopped.set()

    async def _work(
        self, group: asyncio.TaskGroup, outbox: Outbox, lease: LeaseClient, publisher: Publisher
    ) -> None:
        tools = Tools(
            self._limits, outbox, publisher, self._blocked_keys, self.counters, self._clock
        )
        poller = Poller(
            self._limits,
            lease,
            self._leadership,
            self._clock,
            note=self._note,
            noted=self._meter.noted,
            changed=self._judge,
        )
        name = "oplog relay"
        polling = group.create_task(poller.run(), name=f"{name}: lease poller")
        metering = group.create_task(self._meter.run(outbox), name=f"{name}: meter")
        dispatching = group.create_task(self._dispatcher.run(), name=f"{name}: events")
        await self._lead(tools, poller, lease)
        metering.cancel()
        await self._revoke()
        # A poll in progress may still acquire the lease.
        poller.stop()
        await asyncio.wait([polling], timeout=GRACE_S)
        polling.cancel()
        await self._release(lease)
        self._leader_id = None
        with suppress(TimeoutError):
            await self._dispatcher.drain(GRACE_S)
        dispatching.cancel()

    async def _revoke(self) -> None:
        """Tell the handlers that the lead is handed over, if this relay leads."""
        if self._leader_id is not None:
            _log.debug("the lead is given up: term %d", self._number)
            await self._dispatcher.post(LeaderRevoked(self._leader_id, self._number)).wait()

    async def _release(self, lease: LeaseClient) -> None:
        if self._leadership.standing is Standing.FOLLOWING:
            return
        try:
            async with asyncio.timeout(GRACE_S):
                await lease.release(GRACE_S, self._leadership.term)
        except (LeaseUnavailableError, TimeoutError) as error:
            _log.warning(
                "the lease could not be released, and expires within %g s: %s",
                self._limits.session,
                str(error) or "time-out",
            )

    # Lead

    async def _lead(self, tools: Tools, poller: Poller, lease: LeaseClient) -> None:
        """Lead one term after the other, until the relay is to stop."""
        reason, failures, failed_at = "", 0, 0.0
        while not self._stopping.is_set():
            if self._leadership.standing is not Standing.LEADING:
                self._news.clear()
                await self._news.wait()
                continue
            number, leader_id = self._leadership.term, uuid4()
            is_refresh = self._leader_id is not None
            self._meter.due()
            self._number, self._leader_id = number, leader_id
            term = self._term = Term(tools, leader_id, number, partial(self._may_send, number))
            if is_refresh:
                self.counters.refreshes += 1
                _log.debug("leads on with term %d, leader id %s", number, leader_id)
                done = self._dispatcher.post(LeaderRefreshed(leader_id, number, reason, failures))
            else:
                self.counters.acquired += 1
                _log.debug("leads with term %d, leader id %s", number, leader_id)
                done = self._dispatcher.post(LeaderAcquired(leader_id, number))
            if not await done.wait() and not self._stopping.is_set():
                self._term = None
                await self._give_up(poller, lease)
                continue
            if self._stopping.is_set():
                term.end(End(Cause.STOPPED))
            self._unfinished = 0
            end = await term.run()
            self._term = None
            if end.cause is not Cause.FENCED:
                self._unfinished = term.unfinished
            reason = end.reason
            if end.cause is Cause.UNCERTAIN:
                self.counters.uncertain += 1
                now = self._clock()
                failures = failures + 1 if now - failed_at < _SERIES_S else 1
                failed_at = now
                level = logging.WARNING if is_told(failures) else logging.DEBUG
                _log.log(level, "a new term is needed: %s; failures: %d", reason, failures)
                retry_after = min(end.retry_after, _MAX_RETRY_AFTER_S)
                await self._pause(max(self._limits.io_error_backoff, retry_after))
                self._leadership.renew(number)
                poller.poll_now()

    async def _give_up(self, poller: Poller, lease: LeaseClient) -> None:
        """Hand the lead over because a handler hangs, and let other relays take it."""
        await self._revoke()
        async with poller.quiet:
            if self._leader_id is not None:
                await self._release(lease)
                self._leadership.give_up()
                self._leader_id = None
            # Time for another relay to lead: this one would call the handler again.
            await self._pause(self._limits.session)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _may_send(self, number: int) -> bool:
        now = self._clock()
        if self._leadership.may_send(now, number):
            return True
        self._leadership.check(now)
        self._judge()
        return False

    def _judge(self) -> None:
        """End the term if the lease, or the clock, says so."""
        leadership, term = self._leadership, self._term
        if leadership.defeats != self._defeats:
            self._defeats = leadership.defeats
            if self._leader_id is not None:
                self.counters.fenced += 1
                _log.debug("the lead is lost: %s", leadership.reason)
                event = LeaderFenced(self._leader_id, self._number, leadership.reason)
                self._dispatcher.post(event)
                self._leader_id = None
            if term is not None:
                term.end(End(Cause.FENCED, leadership.reason))
        elif term is not None:
            if leadership.standing is not Standing.LEADING or leadership.term != term.number:
                term.end(End(Cause.UNCERTAIN, leadership.reason))
            elif term.is_stuck():
                seconds = self._limits.queue_timeout
                term.end(End(Cause.UNCERTAIN, f"a row is in flight for more than {seconds:g} s"))
        self._news.set()

    def _note(self) -> str | None:
        return self._meter.note(self._blocked_keys.changes)

    def _publish_reading(self, reading: MeterRead) -> None:
        # Readings do not pile up behind a handler that hangs.
        if not self._dispatcher.is_behind():
            self._dispatcher.post(reading)
