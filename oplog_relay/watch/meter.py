"""Reads the figures of a leader at intervals, for handlers of events and for the lease's note."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from oplog_relay.model.bindings import Backlog, MeasurableOutbox, Outbox
from oplog_relay.model.errors import OutboxError
from oplog_relay.model.events import Handler, MeterRead
from oplog_relay.model.note import note
from oplog_relay.model.place import OutboxPlace
from oplog_relay.model.state import Blocked, Counters

# Rows at which counting the backlog ends.
_MAX_BACKLOG = 100_000


class Metered(Protocol):
    """The figures of a relay."""

    counters: Counters

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_id(self) -> UUID | None: ...

    @property
    def term(self) -> int: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def in_flight_keys(self) -> int: ...

    @property
    def blocked(self) -> tuple[Blocked, ...]: ...

    @property
    def place(self) -> OutboxPlace: ...

    def on_event(self, handler: Handler) -> None: ...


class Meter:
    """The meter of a relay. ``interval``: seconds. ``publish`` gets every reading."""

    def __init__(
        self,
        relay: Metered,
        host: str,
        interval: float,
        clock: Callable[[], float],
        publish: Callable[[MeterRead], None],
    ) -> None:
        self._relay = relay
        self._host = host
        self._interval = interval
        self._clock = clock
        self._publish = publish
        self._rate = 0.0
        self._backlog: Backlog | None = None
        self._noted: tuple[int, OutboxPlace] | None = None
        self._is_due = True

    async def run(self, outbox: Outbox) -> None:
        """Read the meter at every interval while the relay leads."""
        relayed, read = 0, self._clock()
        while True:
            await asyncio.sleep(self._interval)
            now, before = self._clock(), relayed
            relayed = self._relay.counters.relayed
            if self._relay.is_leader:
                backlog = await self._measure(outbox)
                if self._relay.is_leader:
                    self._rate = (relayed - before) / max(now - read, 0.001)
                    self._backlog = backlog
                    self._is_due = True
                    self._publish(self._read())
            read = now

    def due(self) -> None:
        """Write the note at the next poll of the lease."""
        self._is_due = True

    def note(self, changes: int) -> str | None:
        """Return the text for the lease's note, None if the last one will do.

        ``changes``: number of changes of blocked keys. Call ``noted`` once the note has arrived.
        """
        relay = self._relay
        noted = changes, relay.place
        if not self._is_due and noted == self._noted:
            return None
        self._noted = noted
        self._is_due = True
        reading = self._read()
        return note(self._host, os.getpid(), reading, relay.blocked, relay.leader_id, relay.place)

    def noted(self) -> None:
        self._is_due = False

    def _read(self) -> MeterRead:
        relay, backlog = self._relay, self._backlog
        return MeterRead(
            self._rate,
            relay.counters.relayed,
            relay.in_flight,
            relay.in_flight_keys,
            backlog.rows if backlog else None,
            backlog.oldest_seconds if backlog else None,
            len(relay.blocked),
        )

    async def _measure(self, outbox: Outbox) -> Backlog | None:
        if isinstance(outbox, MeasurableOutbox):
            with suppress(OutboxError, TimeoutError):
                async with asyncio.timeout(self._interval):
                    return await outbox.backlog(_MAX_BACKLOG)
        return None
