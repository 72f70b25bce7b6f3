"""Leases of clients: their names, their rules, and the fence of a publish. No I/O."""

import re
from typing import NamedTuple

from oplogd.errors import LeaseError, StaleFenceError, TransactionConflictError
from oplogd.model.names import check_name

# Bounds of a lease's time to live.
MIN_TTL_MS = 100
MAX_TTL_MS = 3_600_000
MAX_HOLDER_BYTES = 255
# Of the text of a holder, left with its lease for others to read.
MAX_NOTE_BYTES = 8_192

# The largest number of 18 digits: see ``parse_fence``.
MAX_TERM = 10**18 - 1

# ASCII: headers are read as Latin-1, where more characters count as spaces.
_FENCE = re.compile(r"([^;\s]+)\s*;\s*term\s*=\s*([0-9]{1,18})", re.ASCII)


class Fence(NamedTuple):
    """The condition of a publish, or of a transaction's commit.

    ``term`` is the present term of this lease, and it is held. ``str`` returns the header.
    """

    lease: str
    term: int

    def __str__(self) -> str:
        return f"{self.lease}; term={self.term}"


def parse_fence(header: str) -> Fence:
    """Parse the header ``Oplog-Lease``, such as ``orders; term=7``. Raises LeaseError."""
    match = _FENCE.fullmatch(header.strip(" \t"))
    if match is None or not int(match[2]):
        raise LeaseError("Oplog-Lease", "must be NAME; term=NUMBER, such as orders; term=7")
    return Fence(lease_name(match[1], "Oplog-Lease"), int(match[2]))


def lease_name(name: str, field: str = "lease") -> str:
    """Return the name of a lease: the rules of topics' names apply. Raises TopicError."""
    return check_name(name, field)


def require_same(id_: int, fence: Fence | None, given: Fence) -> None:
    """Raise TransactionConflictError unless a transaction was begun with the fence given."""
    if fence != given:
        begun = "without a lease" if fence is None else f"with {fence}"
        raise TransactionConflictError(
            f"transaction {id_} was begun {begun}, the Oplog-Lease of this request is {given}"
        )


def stale_transaction(id_: int, fence: Fence) -> StaleFenceError:
    """Return the error for a transaction whose fence does not hold, so it cannot commit."""
    return StaleFenceError(
        f"term {fence.term} of the lease {fence.lease} is over; transaction {id_} was aborted"
    )


def stale(fence: Fence) -> str:
    """Return the sentence for a publish whose fence does not hold any more."""
    return f"term {fence.term} of the lease {fence.lease} is over; nothing was stored"
