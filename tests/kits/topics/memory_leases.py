"""Leases in memory: the model of every store's, and their stand-in for other tests."""

from collections.abc import Callable
from typing import NamedTuple

from oplogd.errors import StoreUnavailableError
from oplogd.model.lease import Fence
from oplogd.store.leases import Lease, LeaseRequest, lease_conflict, no_lease


class _Row(NamedTuple):
    holder: str | None
    term: int
    ends: int
    note: str


class MemoryLeases:
    """Implements ``oplogd.store.leases.Leases``. ``clock`` returns ms since 1970.

    ``trouble``: if set, every method raises it.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.trouble: StoreUnavailableError | None = None
        self._clock = clock
        self._rows: dict[str, _Row] = {}

    async def poll(self, request: LeaseRequest) -> Lease:
        self._work()
        name, holder, ttl, refresh, note = request
        row = self._rows.get(name, _Row(None, 0, 0, ""))
        ends = self._clock() + ttl
        if row.holder is None or row.ends <= self._clock():
            self._rows[name] = _Row(holder, row.term + 1, ends, note or "")
        elif row.holder == holder:
            kept = row.note if note is None else note
            self._rows[name] = _Row(holder, row.term + refresh, ends, kept)
        return await self.find(name)

    async def release(self, name: str, holder: str, term: int) -> Lease:
        lease = await self.find(name)
        if lease.term != term or lease.holder not in (holder, None):
            raise lease_conflict(lease)
        self._rows[name] = _Row(None, term, 0, lease.note)
        return await self.find(name)

    async def find(self, name: str) -> Lease:
        self._work()
        if name not in self._rows:
            raise no_lease(name)
        holder, term, ends, note = self._rows[name]
        return Lease(name, holder, term, max(0, ends - self._clock()), note)

    async def select(self, after: str, limit: int) -> list[Lease]:
        self._work()
        names = sorted(name for name in self._rows if name > after)
        return [await self.find(name) for name in names[:limit]]

    def holds(self, fence: Fence) -> bool:
        """Return whether a publish with this fence is accepted now."""
        row = self._rows.get(fence.lease)
        return row is not None and row.holder is not None and row.term == fence.term

    def _work(self) -> None:
        if self.trouble is not None:
            raise self.trouble
