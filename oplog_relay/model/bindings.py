"""The interfaces of the relay to a database, a lease and an agent. Users may bring their own.

All methods are coroutines and may be cancelled. They may be called concurrently, also with another
method of the same object.
"""

from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from oplog_relay.model.row import Row


class Purged(NamedTuple):
    """The result of a purge: rows still in the table.

    ``locked``: ids of rows another transaction has locked: to be purged again later. ``remaining``:
    number of rows the database has not deleted, such as by a trigger. ``changed``: number of rows
    with an id of the purge and another stamp: marked by another relay, or new with an old id.
    """

    locked: tuple[int, ...] = ()
    remaining: int = 0
    changed: int = 0


class Outbox(Protocol):
    """The outbox table. Methods raise OutboxError, and may have made the change.

    The stamp of a row is the leader id and the number of a mark: see ``oplog_relay.model.stamp``.
    """

    async def mark(
        self, leader_id: UUID, limit: int, number: int = 0, passed: Collection[str] = ()
    ) -> list[Row]:
        """Stamp rows with leader id and number, and return them, sorted by id.

        These are the rows with the lowest ids without a stamp of this leader, at most ``limit``,
        without rows of ``passed`` keys. Select and stamp are atomic. ``mark`` of the rows is
        ``number``. If a row is locked, later rows of its key may be left out. No row of a key may
        be returned before a lower one.
        """

    async def purge(self, leader_id: UUID, rows: Sequence[Row]) -> Purged:
        """Delete the rows with the stamp of their mark."""

    async def reset(
        self, leader_id: UUID, *, rows: Sequence[Row] | None = None, key: str | None = None
    ) -> int:
        """Remove stamps of this leader. Return the number of rows.

        ``rows``: only of these, as far as they carry the stamp of their mark. ``key``: only of rows
        with this key. Neither: of all rows; locked ones may be left out.
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
    """An outbox with a backlog."""

    async def backlog(self, at_most: int) -> Backlog:
        """Return the backlog. Raises OutboxError."""


@runtime_checkable
class CheckedOutbox(Protocol):
    """An outbox with a check of its table. The relay does it when it starts."""

    async def check(self) -> None:
        """Raise ConfigError if the table does not fit, OutboxError if it cannot be reached."""


@runtime_checkable
class IdentifiedOutbox(Protocol):
    """An outbox with an identity."""

    async def identity(self) -> str:
        """Return a text of this outbox alone, without secrets. Empty: not known.

        Raises OutboxError.
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

    @property
    def is_held(self) -> bool:
        return self.holder is not None and self.expires_in > 0


class LeaseClient(Protocol):
    """A lease of one name, for one holder. Methods raise LeaseUnavailableError.

    A call tries for ``seconds`` at most, over all agents it knows.
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


@runtime_checkable
class VisibleLease(Protocol):
    """A lease whose note can be read by others than its holder."""

    async def look_at_note(self, seconds: float) -> str:
        """Return the note of the holder, empty without one. Raises LeaseUnavailableError."""


class Verdict(Enum):
    """The meaning of an agent's answer to a publish."""

    # All rows are durable.
    ACCEPTED = auto()
    # The agent refuses for good, and has stored nothing: at least one row is at fault.
    REFUSED = auto()
    # The term is over, and nothing was stored.
    STALE = auto()
    # The agent did not store the rows, or did not confirm it, for a transient cause.
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
