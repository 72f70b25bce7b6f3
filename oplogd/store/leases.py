"""The interface between the agent and the leases of a store, and the rules of all stores."""

from typing import NamedTuple, Protocol

from oplogd.errors import LeaseConflictError, LeaseNotFoundError

# A holder extends its lease with a write at most this often per time to live.
EXTENSIONS = 20


class Lease(NamedTuple):
    """A lease as the store has it.

    ``holder``: None after a release. ``term``: persists and never falls. It rises by one whenever
    the lease is acquired and whenever its holder asks for a new term. ``left_ms``: time until
    another client may acquire the lease, by the store's clock. 0: any client may. ``note``: text of
    the holder for others.
    """

    name: str
    holder: str | None
    term: int
    left_ms: int
    note: str


class LeaseRequest(NamedTuple):
    """A poll of a lease: it acquires a free lease, and extends an own one.

    ``refresh``: the holder also wants a new term. ``note``: None keeps the present one.
    """

    name: str
    holder: str
    ttl_ms: int
    refresh: bool = False
    note: str | None = None


class LeaseRow(NamedTuple):
    """A lease as a store keeps it. ``until``: ms since 1970. ``ttl``: of the last extension, in ms.

    ``holder``: None after a release.
    """

    holder: str | None
    term: int
    until: int
    ttl: int
    note: str

    def lease(self, name: str, now_ms: int) -> Lease:
        return Lease(name, self.holder, self.term, max(0, self.until - now_ms), self.note)


def polled(row: LeaseRow | None, request: LeaseRequest, now_ms: int) -> LeaseRow:
    """Return the row after a poll: the same one if the poll changes nothing.

    ``row``: None if the lease had no holder so far.
    """
    _, holder, ttl, refresh, note = request
    until = now_ms + ttl
    if row is None:
        return LeaseRow(holder, 1, until, ttl, note or "")
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


def released(row: LeaseRow, name: str, holder: str, term: int) -> LeaseRow:
    """Return the row after a release: the same one if it is repeated. Raises LeaseConflictError."""
    if row.term != term or row.holder not in (holder, None):
        raise lease_conflict(row.lease(name, 0))
    return row._replace(holder=None, until=0)


def lease_conflict(lease: Lease) -> LeaseConflictError:
    """Return the error for a request with another holder or term."""
    name, holder, term, _, _ = lease
    if holder is None:
        return LeaseConflictError(f"the lease {name} has no holder, its last term is {term}")
    return LeaseConflictError(f"the lease {name} is held by {holder} with term {term}")


def no_lease(name: str) -> LeaseNotFoundError:
    """Return the error for a lease without a holder so far."""
    return LeaseNotFoundError(f"the lease {name} has never been held")


class Leases(Protocol):
    """The leases of a store. Several agents on one store share them.

    Every method may raise StoreUnavailableError; the call may have been carried out all the same.
    Methods may be called concurrently.

    A publish with a ``Fence`` is judged by the present lease at its append: see ``MessageBatch``
    and ``Store.append_fenced``. An expired lease keeps its term until another client acquires it,
    so a fence holds past the expiry: the term alone makes publishing safe.
    """

    async def poll(self, request: LeaseRequest) -> Lease:
        """Acquire, extend or look at a lease, and return it. The caller leads if it is the holder.

        A poll by the holder before the expiry keeps the term, unless ``refresh`` is set. A poll
        after the expiry, by any client, acquires the lease with the next term. A poll by another
        client changes nothing.
        """

    async def release(self, name: str, holder: str, term: int) -> Lease:
        """Give up a lease: any client may acquire it now, and fences of this term end.

        A repeated call returns the same. Raises LeaseNotFoundError, and LeaseConflictError if the
        lease has another term or holder.
        """

    async def find(self, name: str) -> Lease:
        """Return a lease. Raises LeaseNotFoundError if it never had a holder."""

    async def select(self, after: str, limit: int) -> list[Lease]:
        """Return leases that were ever held, past a name, sorted by name."""
