"""Logs an error if a relay of another outbox holds the lease: the rows of this one wait."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from oplog_relay.model.bindings import Bindings, IdentifiedOutbox, LeaseClient, Outbox, VisibleLease
from oplog_relay.model.errors import LeaseUnavailableError, OutboxError
from oplog_relay.model.note import read_note
from oplog_relay.model.place import conflict, place_of
from oplog_relay.model.settings import RelaySettings

_log = logging.getLogger("oplog_relay")

# Pause between two questions for the identity.
_IDENTITY_S = 1.0
# After a file was replaced, its leader gets this time to say so in its note.
_SETTLE_S = 10.0


async def identity_of(outbox: Outbox, seconds: float) -> str:
    """Return the identity of an outbox; empty: it is not known."""
    if isinstance(outbox, IdentifiedOutbox):
        with suppress(OutboxError, TimeoutError):
            async with asyncio.timeout(seconds):
                return await outbox.identity()
    return ""


class Rivals:
    """Looks at the lease every ``limits.meter`` seconds while this relay does not lead.

    ``place``: the outbox of this relay. Its known identity is checked each second: a file of SQLite
    may be replaced.
    """

    def __init__(self, settings: RelaySettings, is_leader: Callable[[], bool]) -> None:
        self.place = place_of(settings.database)
        self._name = settings.name
        self._interval = settings.limits.meter
        self._is_leader = is_leader
        self._logged: str | None = None

    async def run(self, bindings: Bindings) -> None:
        now = asyncio.get_running_loop().time
        look_at = now() + self._interval
        while True:
            is_due = now() >= look_at
            # Before the identity: a newer note would be taken for a rival's.
            note = await self._read_note(bindings.lease) if is_due else None
            known = self.place.identity
            identity = await identity_of(bindings.outbox, self._interval)
            if identity:
                self.place = self.place._replace(identity=identity)
            if known not in ("", self.place.identity):
                look_at = now() + max(self._interval, _SETTLE_S)
            elif is_due:
                look_at = now() + self._interval
                if note is not None:
                    self._judge(note)
            await asyncio.sleep(min(self._interval, _IDENTITY_S) if identity else self._interval)

    async def _read_note(self, lease: LeaseClient) -> str | None:
        """Return the note of another leader, None without an answer."""
        if self._is_leader():
            self._logged = None
        elif isinstance(lease, VisibleLease):
            with suppress(LeaseUnavailableError):
                return await lease.look_at_note(self._interval)
        return None

    def _judge(self, note: str) -> None:
        found = conflict(self._name, read_note(note), self.place)
        if found is not None and found != self._logged:
            _log.error("%s", found)
        self._logged = found
