"""The relay: leads its group or waits for the lead, and moves the rows of the outbox."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Self
from uuid import UUID, uuid4

from oplog_relay.leader.blocked import BlockedKeys
from oplog_relay.leader.end import GRACE_S, Tools
from oplog_relay.leader.lead import Lead
from oplog_relay.leader.leadership import boot_time
from oplog_relay.leader.opening import check_table, close_binding, first_of, open_bindings
from oplog_relay.leader.poller import LeasePoller
from oplog_relay.leader.rivals import Rivals
from oplog_relay.model.bindings import Bindings, LeaseClient, Outbox, Publisher
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.events import Handler, MeterRead
from oplog_relay.model.place import OutboxPlace
from oplog_relay.model.settings import RelaySettings
from oplog_relay.model.state import Blocked, Counters, State
from oplog_relay.watch.dispatch import Dispatcher
from oplog_relay.watch.meter import Meter

_log = logging.getLogger("oplog_relay")


class Relay:
    """A relay. Runs in the event loop of the call of ``start``.

    ``outbox``, ``lease``, ``publisher``: bindings of your own, instead of those of the settings.
    The relay closes them when it stops. ``wrap``: puts others around all of them, such as
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
        self._blocked_keys = BlockedKeys(settings.limits.blocked_backoff)
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._error: BaseException | None = None
        self._rivals = Rivals(settings, lambda: self.is_leader)
        self._meter = Meter(self, self._host, settings.limits.meter, clock, self._publish_reading)
        self._lead = Lead(settings.limits, self._dispatcher, self.counters, clock, self._meter.due)

    async def start(self) -> None:
        """Begin to poll the lease. An unreachable database is tried again later.

        Raises ConfigError, also for a wrong table, and RuntimeError after an earlier start.
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
        if self._state is State.RUNNING:
            self._state = State.STOPPING
        self._lead.stop()
        if not self._dispatcher.is_handling():
            await self._stopped.wait()

    async def wait(self) -> None:
        """Wait until the relay has stopped. Raises the error behind the stop."""
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

        A handler is cancelled after 30 s. If it holds up the lead, this relay gives the lead up.
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
        return self._lead.leader_id is not None

    @property
    def leader_id(self) -> UUID | None:
        """The leader id of the present term. None: this relay does not lead."""
        return self._lead.leader_id

    @property
    def term(self) -> int:
        """The present term. 0: this relay does not lead."""
        return self._lead.number if self._lead.leader_id is not None else 0

    @property
    def in_flight(self) -> int:
        """Marked rows before their purge, without rows of blocked keys."""
        return self._lead.term.flow.in_flight if self._lead.term is not None else 0

    @property
    def unfinished(self) -> int:
        """Rows of the last term that may have arrived and are still in the outbox.

        0 while a term lasts, after a loss of the lead, and after a stop that has finished all.
        """
        return self._lead.unfinished

    @property
    def in_flight_keys(self) -> int:
        """Keys of these rows."""
        return self._lead.term.flow.in_flight_keys if self._lead.term is not None else 0

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """The blocked keys, oldest first."""
        return self._blocked_keys.rows() if self._lead.term is not None else ()

    @property
    def place(self) -> OutboxPlace:
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
            self._lead.leader_id = self._lead.term = None
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
        poller = LeasePoller(
            self._limits,
            lease,
            self._lead.leadership,
            self._clock,
            note=self._note,
            noted=self._meter.noted,
            changed=self._lead.judge,
        )
        name = "oplog relay"
        polling = group.create_task(poller.run(), name=f"{name}: lease poller")
        metering = group.create_task(self._meter.run(outbox), name=f"{name}: meter")
        dispatching = group.create_task(self._dispatcher.run(), name=f"{name}: events")
        await self._lead.run(tools, poller, lease)
        metering.cancel()
        await self._lead.revoke()
        # A poll in progress may still acquire the lease.
        poller.stop()
        await asyncio.wait([polling], timeout=GRACE_S)
        polling.cancel()
        await self._lead.release(lease)
        self._lead.leader_id = None
        with suppress(TimeoutError):
            await self._dispatcher.drain(GRACE_S)
        dispatching.cancel()

    def _note(self) -> str | None:
        return self._meter.note(self._blocked_keys.changes)

    def _publish_reading(self, reading: MeterRead) -> None:
        # Readings do not pile up behind a hanging handler.
        if not self._dispatcher.is_behind():
            self._dispatcher.post(reading)
