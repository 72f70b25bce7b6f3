"""The interfaces of the relay to a database, a lease and an agent. Users may bring their own.

All methods are coroutines and may be cancelled. They may be called concurrently, also with another
method of the same object.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from oplog_relay.row import Row


class Outbox(Protocol):
    """The outbox table. Methods raise OutboxError; the change may have been made all the same."""

    async def mark(self, leader_id: UUID, limit: int) -> list[Row]:
        """Stamp rows with the leader id and return them, sorted by id.

        These are the rows with the lowest ids whose leader id is null or another one, at most
        ``limit``. Select and stamp are atomic.
        """

    async def purge(self, ids: Sequence[int]) -> int:
        """Delete rows, whoever marked them. Return the number deleted."""

    async def reset(
        self, leader_id: UUID, *, ids: Sequence[int] | None = None, key: str | None = None
    ) -> int:
        """Set the leader id of rows that have this one to null. Return the number of rows.

        ``ids`` or ``key``: only rows with these; neither: all of them.
        """

    async def dispose(self) -> None:
        """Close the connections. A call in progress may fail."""


class Backlog(NamedTuple):
    """Rows in the outbox, and the age of the oldest one in seconds by the database's clock.

    ``rows`` counts up to ``at_most`` of the call. ``oldest_seconds``: 0 without rows.
    """

    rows: int
    oldest_seconds: float


@runtime_checkable
class MeasurableOutbox(Protocol):
    """An outbox that also tells how much is left to do."""

    async def backlog(self, at_most: int) -> Backlog:
        """Return the backlog. Raises OutboxError."""


@runtime_checkable
class CheckedOutbox(Protocol):
    """An outbox that can compare its table with the settings. The relay does it when it starts."""

    async def check(self) -> None:
        """Raise ConfigError if the table does not fit the settings.

        Raises OutboxError if the database cannot be reached.
        """


class LeaseState(NamedTuple):
    """A lease as an agent shows it. ``is_leader``: the one who asked holds it.

    ``expires_in``: seconds until another one may acquire it. ``note``: left by the holder.
    """

    is_leader: bool
    holder: str | None
    term: int
    expires_in: float
    note: str = ""


class LeaseClient(Protocol):
    """A lease of one name, for one holder. Methods raise LeaseUnavailableError.

    A call tries for ``seconds`` at most, over all agents that it knows.
    """

    async def poll(
        self, seconds: float, *, refresh: bool = False, note: str | None = None
    ) -> LeaseState:
        """Acquire, extend or look at the lease. ``refresh``: the holder wants a new term.

        ``note``: text of at most 8 KiB for others to read; None keeps the present one.
        """

    async def release(self, seconds: float, term: int) -> None:
        """Give the lease up if this holder still has it with this term."""

    async def close(self) -> None: ...


class Verdict(Enum):
    """The meaning of an agent's answer to a publish."""

    # All rows are durable.
    ACCEPTED = auto()
    # The agent refuses for good, and has stored nothing: at least one row is at fault.
    REFUSED = auto()
    # The term is over, and nothing was stored.
    STALE = auto()
    # The agent did not store the rows, or did not confirm it, for a cause that passes.
    UNCERTAIN = auto()
    # The agent refuses this relay, not its rows, and has stored nothing: a wrong password or URL.
    FORBIDDEN = auto()


class Outcome(NamedTuple):
    """``reason``: a sentence; empty if accepted. ``retry_after``: seconds the agent asks for."""

    verdict: Verdict
    reason: str = ""
    retry_after: float = 0.0


class Publisher(Protocol):
    """Sends rows to an agent."""

    async def publish(self, topic: str, rows: Sequence[Row], term: int) -> Outcome:
        """Send rows of one topic in one request, all or none, under a term of the relay's lease.

        Sends once, to one agent; after a failure the next call goes to another one. Raises no
        error.
        """

    async def close(self) -> None: ...


class Bindings(NamedTuple):
    """The bindings of one relay."""

    outbox: Outbox
    lease: LeaseClient
    publisher: Publisher
