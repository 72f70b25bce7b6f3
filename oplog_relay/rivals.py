"""Tells in the log if a relay of another outbox holds the lease: rows would wait without a word."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from oplog_relay.bindings import Bindings, IdentifiedOutbox, Outbox, VisibleLease
from oplog_relay.errors import LeaseUnavailableError, OutboxError
from oplog_relay.note import read_note
from oplog_relay.place import conflict, place_of
from oplog_relay.settings import RelaySettings

_log = logging.getLogger("oplog_relay")


async def identity_of(outbox: Outbox, seconds: float) -> str:
    """Return the identity of an outbox; empty: it is not known."""
    if isinstance(outbox, IdentifiedOutbox):
        with suppress(OutboxError, TimeoutError):
            async with asyncio.timeout(seconds):
                return await outbox.identity()
    return ""


class Rivals:
    """Looks at the lease every ``limits.meter`` seconds while this relay does not lead.

    ``place``: the outbox of this relay.
    """

    def __init__(self, settings: RelaySettings, is_leader: Callable[[], bool]) -> None:
        self.place = place_of(settings.database)
        self._name = settings.name
        self._interval = settings.limits.meter
        self._is_leader = is_leader
        self._told: str | None = None

    async def run(self, bindings: Bindings) -> None:
        while True:
            if not self.place.identity:
                identity = await identity_of(bindings.outbox, self._interval)
                self.place = self.place._replace(identity=identity)
            await asyncio.sleep(self._interval)
            if self._is_leader():
                self._told = None
            elif isinstance(bindings.lease, VisibleLease):
                with suppress(LeaseUnavailableError):
                    self._judge(await bindings.lease.look_at_note(self._interval))

    def _judge(self, note: str) -> None:
        found = conflict(self._name, read_note(note), self.place)
        if found is not None and found != self._told:
            _log.error("%s", found)
        self._told = found
