"""The rule of a poll, for all stores: a lease as a store keeps it, before and after. No I/O."""

from typing import NamedTuple

from oplogd.store.leases import Lease, LeaseRequest

# A holder extends its lease with a write at most this often per time to live.
EXTENSIONS = 20


class LeaseRow(NamedTuple):
    """The members of a lease. ``until``: ms since 1970. ``ttl``: of the last extension, in ms.

    ``holder``: None after a release.
    """

    holder: str | None
    term: int
    until: int
    ttl: int
    note: str

    def lease(self, name: str, now_ms: int) -> Lease:
        return Lease(name, self.holder, self.term, max(0, self.until - now_ms), self.note)


# A lease without a holder so far.
NEVER_HELD = LeaseRow(None, 0, 0, 0, "")


def polled(row: LeaseRow, request: LeaseRequest, now_ms: int) -> LeaseRow:
    """Return the row after a poll: the same one if the poll changes nothing."""
    _, holder, ttl, refresh, note = request
    until = now_ms + ttl
    if row.holder is None or row.until <= now_ms:
        return LeaseRow(holder, row.term + 1, until, ttl, note or "")
    if row.holder != holder:
        # The clock was set back, or another server's counts now: a dead holder's lease must still
        # end. Clocks that differ by less than a time to live cause no writes.
        is_ahead = row.until > now_ms + 2 * row.ttl
        return row._replace(until=now_ms + row.ttl) if is_ahead else row
    changed = row._replace(term=row.term + refresh, note=row.note if note is None else note)
    is_recent = row.ttl == ttl and 0 <= (until - row.until) * EXTENSIONS < ttl
    return row if changed == row and is_recent else changed._replace(until=until, ttl=ttl)
