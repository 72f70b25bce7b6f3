"""The interface between the agent and the leases of a store."""

from typing import NamedTuple, Protocol

from oplogd.errors import LeaseConflictError, LeaseNotFoundError


class Lease(NamedTuple):
    """A lease as the store has it.

    ``holder``: None after it was released. ``term``: persists, and rises by one whenever the lease
    is acquired and whenever its holder asks for a new term; it never falls. ``left_ms``: time until
    another one may acquire it, by the store's clock, 0 if anyone may. ``note``: text that the
    holder has left for others to read.
    """

    name: str
    holder: str | None
    term: int
    left_ms: int
    note: str


class LeaseRequest(NamedTuple):
    """A poll of a lease: it acquires a free lease, and extends an own one.

    ``refresh``: the holder also wants a new term. ``note``: None keeps the one that is there.
    """

    name: str
    holder: str
    ttl_ms: int
    refresh: bool = False
    note: str | None = None


def no_lease(name: str) -> LeaseNotFoundError:
    """Return the error for a lease without a holder so far."""
    return LeaseNotFoundError(f"nobody ever held the lease {name}")


def lease_conflict(lease: Lease) -> LeaseConflictError:
    """Return the error for a request that takes another holder or term for granted."""
    if lease.holder is None:
        return LeaseConflictError(
            f"nobody holds the lease {lease.name}, whose last term is {lease.term}"
        )
    return LeaseConflictError(
        f"the lease {lease.name} is held by {lease.holder} with term {lease.term}"
    )


class Leases(Protocol):
    """The leases of a store. Several agents on one store share them.

    Every method may raise StoreUnavailableError; the call may have been carried out all the same.
    Methods may be called concurrently.

    A publish with a ``Fence`` is judged by the present lease when it is appended: see
    ``MessageBatch`` and ``Store.append_fenced``. An expired lease keeps its term until another one
    acquires it, so a fence holds past the expiry: the term alone makes publishing safe.
    """

    async def poll(self, request: LeaseRequest) -> Lease:
        """Acquire, extend or look at a lease, and return it. The caller leads if it is the holder.

        A poll by the holder before the expiry keeps the term, unless ``refresh`` is set. A poll
        after the expiry, by anyone, acquires the lease with the next term. A poll by anyone else
        changes nothing.
        """

    async def release(self, name: str, holder: str, term: int) -> Lease:
        """Give up a lease: anyone may acquire it now, and fences of this term do not hold any more.

        A repeated call returns the same. Raises LeaseNotFoundError, and LeaseConflictError if the
        lease has another term, or is held by another one.
        """

    async def find(self, name: str) -> Lease:
        """Return a lease. Raises LeaseNotFoundError if it never had a holder."""

    async def select(self, after: str, limit: int) -> list[Lease]:
        """Return leases that were ever held, past a name, sorted by name."""
