"""The interface between the agent and a database."""

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oplogd.clock.guard import GuardedClock
from oplogd.errors import OperationError, StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.lease import Fence
from oplogd.model.operation import Data, Operation, decode_data
from oplogd.store.consumers import Consumers
from oplogd.store.leases import Leases
from oplogd.store.objects import Objects
from oplogd.store.pointers import Pointers
from oplogd.store.space import Space
from oplogd.store.topics import Topics
from oplogd.store.transactions import Transactions

_IDENTITY = re.compile(r"[0-9a-f]{32}")
SECRET_BYTES = 32


def sound_identity(found: object) -> str | None:
    """Return the identity found in a store. None: it is damaged."""
    return found if isinstance(found, str) and _IDENTITY.fullmatch(found) else None


def sound_secret(found: object) -> bytes | None:
    """Return the secret found in a store. None: it is damaged."""
    return found if isinstance(found, bytes) and len(found) == SECRET_BYTES else None


def decode_stored(text: str) -> Data:
    """Decode the data of a stored operation. Raises StoreUnavailableError if it is damaged."""
    try:
        return decode_data(text)
    except OperationError as error:
        raise StoreUnavailableError(
            f"the store holds a damaged operation, restore a sound copy: {error.reason}"
        ) from None


class Entry(NamedTuple):
    """An operation in the log. ``ms``: its time. ``data``: the JSON text that consumers get."""

    offset: int
    ms: int
    event: str
    data: str


class StateCursor(NamedTuple):
    """A place among the states, in the order of time.

    ``tie`` orders states of the same millisecond; None comes first.
    """

    ms: int
    tie: int | str | None


class State(NamedTuple):
    """The last operation of one object. ``cursor.ms``: the time of its entry."""

    cursor: StateCursor
    deleted: bool
    data: str


class StatesPage(NamedTuple):
    """Some states in order of time. ``next``: the cursor of the next page, None after the last.

    An empty page may have a next one.
    """

    states: list[State]
    next: StateCursor | None


class LogBounds(NamedTuple):
    """The ends and times of the log, to judge positions."""

    # The newest entry; in an empty log the mark before the first entry.
    head: Mark
    # The oldest entry, None if the log is empty.
    oldest: Mark | None
    # Time of the entry at the offset given to ``locate``, None if there is no such entry.
    at_ms: int | None
    # The states know no deletions before this time.
    created_ms: int
    # Smaller offsets belong to an earlier epoch.
    first_offset: int
    # Tombstones before this time may have been purged.
    purged_ms: int
    # Ids of the first server are known up to this time; 0: none were taken over.
    adopted_ms: int
    # Spans, ends excluded, without entries: the store was closed.
    unwritten: tuple[tuple[int, int], ...] = ()
    # Spans, ends excluded, of logs set aside because their clock was ahead.
    set_aside: tuple[tuple[int, int], ...] = ()
    # The store's clock: the agent's, or the server's if several agents share the store.
    now_ms: int = 0


class StoreStats(NamedTuple):
    """Figures for /status.

    ``states`` includes the ``deleted`` ones, None until counted. ``bytes`` and ``max_bytes``: size
    and cap of the log. ``lag``: entries not yet in the states. ``warnings``: sentences with a fault
    and its repair. ``wal_bytes``: size of SQLite's write-ahead log.
    """

    operations: int
    states: int
    bytes: int
    max_bytes: int
    oldest: Mark | None
    newest: Mark | None
    lag: int
    warnings: tuple[str, ...] = ()
    deleted: int | None = None
    wal_bytes: int | None = None


class BatchId(NamedTuple):
    """Identity of a batch: the writer's token, and the sequence of the batch's first operation.

    A writer numbers its operations in steps of one. So a shared store recognises a batch whose
    answer was lost.
    """

    writer: str
    sequence: int


class FencedBatch(NamedTuple):
    """Operations appended together, or not at all, if their fence holds."""

    operations: Sequence[Operation]
    fence: Fence


class Store(Protocol):
    """A log with its states.

    Every method may raise StoreUnavailableError: trying again makes sense. ``open`` may also raise
    StoreError. A store on another machine opens even without an answer; its other methods then
    raise.

    Methods may be called concurrently, except ``append``, ``append_fenced`` and ``follow``: they
    have one caller each. ``locate``, ``checkpoint`` and ``stats`` never wait for pending reads of
    entries or states.
    """

    @property
    def kind(self) -> str: ...

    @property
    def identity(self) -> str | None:
        """32 hexadecimal digits, made once and saved in the store. A backup has the same.

        None: the store has not opened yet, or its identity is damaged.
        """

    @property
    def secret(self) -> bytes | None:
        """32 random bytes, made once and saved in the store, for keys that sign. Never shown.

        All agents on a store have the same. So has a backup, and a new epoch. None: the store has
        not opened yet, or its secret is damaged.
        """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def append(
        self, operations: Sequence[Operation], batch_id: BatchId | None = None
    ) -> None:
        """Append operations in this order. They are durable when the call returns.

        A repeated call with the same batch id appends none of them twice.
        """

    async def append_fenced(self, batches: Sequence[FencedBatch]) -> list[bool]:
        """Append the batches whose fences hold, in this order. Return for each whether it did.

        The fence is judged with the append: no batch of a term is in the log behind a batch of a
        later term. The operations are durable when the call returns. If it raises, the batches may
        or may not be in the log; nothing tries them again.
        """

    async def follow(
        self, after: int, limit: int, seconds: float, at_ms: int | None = None
    ) -> list[Entry]:
        """Do ``read``, but wait up to ``seconds`` for the first entry of any writer.

        Only the follower calls it.
        """

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        """Return up to ``limit`` entries after an offset, in order of their offsets.

        The first one is not ``after + 1`` if this entry has left the log. ``at_ms``: the expected
        time of the entry at ``after``, or of the log's beginning. Raises LogReplacedError for
        another time there: the entries do not continue the log read before.
        """

    async def locate(self, offset: int = 0) -> LogBounds:
        """Return the bounds of the log, and the time of the entry at ``offset``."""

    async def checkpoint(self) -> Mark:
        """Wait until the states hold all entries of this moment. Return the checkpoint."""

    async def states(
        self,
        start: StateCursor,
        upto: int,
        limit: int,
        *,
        live_only: bool,
        deleted_only: bool = False,
    ) -> StatesPage:
        """Return states after ``start`` whose last operation has an offset of at most ``upto``.

        ``live_only`` leaves out tombstones, ``deleted_only`` all others. One call looks at about
        ``limit`` states, even if it leaves out most of them.
        """

    async def stats(self) -> StoreStats: ...

    async def purge(self, before_ms: int) -> int:
        """Purge tombstones older than ``before_ms``, record the time, and return their number."""

    async def seek(self, ms: int) -> Mark:
        """Return the mark of the last entry of the log at or before a time.

        Without one: offset 0, or the offset before the oldest entry, with time 0.
        """

    @property
    def space(self) -> Space | None:
        """The space on the disk under the store. None: the store is on another machine."""

    @property
    def objects(self) -> Objects:
        """The objects, for look-ups."""

    @property
    def topics(self) -> Topics:
        """The topics beside the log."""

    @property
    def transactions(self) -> Transactions:
        """The transactions over the topics and the log."""

    @property
    def pointers(self) -> Pointers:
        """The messages of topics under foreign transactions."""

    @property
    def leases(self) -> Leases:
        """The leases of clients."""

    @property
    def consumers(self) -> Consumers:
        """The named consumers."""

    @property
    def clock(self) -> GuardedClock:
        """The guarded time of this store."""

    async def keep_clock(self) -> None:
        """Look at the clocks. Let the store keep the guarded time, for others and later starts."""

    async def ahead_ms(self) -> int:
        """Return by how much the newest known time leads the guarded one; 0: up to a minute."""

    async def new_epoch(self) -> None:
        """Set the log aside, begin a new one, and give all states the present time.

        Repairs times ahead of the clock, also in topics. Messages stamped ahead get the present
        time, and their times to live begin again.
        """
