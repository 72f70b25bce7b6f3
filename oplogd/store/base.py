"""The one interface between the agent and a database."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from oplogd.event_id import Mark
from oplogd.operation import Operation


class Entry(NamedTuple):
    """One operation in the log. ``ms`` is the time in its event id; ``data`` the JSON text that consumers get."""

    offset: int
    ms: int
    event: str
    data: str


class StateCursor(NamedTuple):
    """A place in the states ordered by time; ``tie`` tells those of one millisecond apart, None is before them all."""

    ms: int
    tie: int | str | None


class State(NamedTuple):
    """The last operation of one object. ``cursor.ms`` is the time in that operation's event id."""

    cursor: StateCursor
    deleted: bool
    data: str


class StatesPage(NamedTuple):
    """Some states in time order. ``next`` is the cursor to go on from, None after the last: an empty page is no end."""

    states: list[State]
    next: StateCursor | None


class Located(NamedTuple):
    """What a position is judged against, read in one transaction.

    ``head``: the newest entry, or where the next would follow. ``oldest``: the oldest entry, None when the log is empty.
    ``at_ms``: the time of the entry at the offset asked for, None if there is none. ``created_ms``: states know nothing
    of deletions before it. ``first_offset``: smaller ones belong to another epoch. ``purged_ms``: deleted states before
    it may be gone. ``adopted_ms``: ids of the first server up to this time are known here (0: never taken over).
    """

    head: Mark
    oldest: Mark | None
    at_ms: int | None
    created_ms: int
    first_offset: int
    purged_ms: int
    adopted_ms: int
    unwritten: tuple[tuple[int, int], ...] = ()
    """Spans of time, ends not included, in which this history wrote nothing: the store was closed."""

    set_aside: tuple[tuple[int, int], ...] = ()
    """Spans of time, ends not included, of logs that were set aside because their clock was ahead."""

    now_ms: int = 0
    """The clock by which entries are timed: the agent's own, or that of a server that several agents share."""


class StoreStats(NamedTuple):
    """Figures for /status. ``lag``: entries that are in the log and not yet in the states.

    ``states`` includes the ``deleted`` objects. ``deleted`` is None until they have been counted.
    ``warnings``: what somebody has to mend, each a sentence that says how.
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


class Stamp(NamedTuple):
    """Who appends, and the number of the batch's first operation among the writer's own, which ascend by one.

    By it a store that many agents write to recognises what landed although the answer was lost.
    """

    writer: str
    sequence: int


class Correction(NamedTuple):
    """An operation that may be appended only if its object is still as it was seen.

    ``expected_offset``: the offset of the object's last operation, 0 where there was none; None appends in any case.
    """

    operation: Operation
    expected_offset: int | None


class Verdict(StrEnum):
    """What became of a correction. PRESENT: an operation with the same effect is the object's last already."""

    APPLIED = "applied"
    PRESENT = "present"
    SKIPPED = "skipped"


class Corrector(Protocol):
    """The part of a store that appends under a guard, for tools beside the agent. Errors as with Store."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def correct(self, corrections: Sequence[Correction]) -> list[Verdict]:
        """Append those whose object nothing has touched, in this order; the verdict on each.

        At most MAX_CORRECTIONS. No correction follows a newer operation on its object, whoever wrote that and whether
        or not it is in the states yet. The same call may be repeated: what it appended is PRESENT then.
        """


MAX_CORRECTIONS = 1000
"""How many corrections one call of ``Corrector.correct`` takes."""


class Store(Protocol):
    """A log with its states.

    Every method may raise StoreUnavailableError, after which calling it again makes sense; ``open`` also StoreError.
    ``open`` of a store on another machine succeeds while that is away; its other methods then raise.
    Methods may be called concurrently, but for ``append`` and ``follow``, which have one
    caller each. However many ``read`` and ``states`` are pending, ``locate``, ``checkpoint`` and ``stats`` do not
    wait for them.
    """

    @property
    def kind(self) -> str: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def append(self, operations: Sequence[Operation], stamp: Stamp | None = None) -> None:
        """Add operations to the log in this order. When it returns they are durable.

        Called again with the same operations and stamp, it adds none of them twice.
        """

    async def follow(
        self, after: int, limit: int, seconds: float, at_ms: int | None = None
    ) -> list[Entry]:
        """As ``read``, but wait up to ``seconds`` for the first entry, whoever writes it. One caller: the follower."""

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        """Up to ``limit`` entries past an offset, in offset order.

        The first is not ``after + 1`` when that one has left the log. ``at_ms``: the time of the entry at ``after``, or
        of the log's beginning. LogReplacedError says that the log has another there, so that these entries do not follow it.
        """

    async def locate(self, offset: int = 0) -> Located: ...

    async def checkpoint(self) -> Mark:
        """Wait until the states hold every entry present at the call; the place up to which they do."""

    async def states(
        self, start: StateCursor, upto: int, live_only: bool, limit: int
    ) -> StatesPage:
        """States past ``start`` in time order whose last operation has an offset of at most ``upto``.

        One call looks at about ``limit`` states, however many others (deleted, changed later) lie between them.
        """

    async def stats(self) -> StoreStats: ...

    async def purge(self, before_ms: int) -> int:
        """Forget deleted states older than ``before_ms``, record that, and tell how many they were."""

    async def new_epoch(self) -> None:
        """Set the log aside and stamp the states with the present time: for a log whose time ran ahead."""
