"""The interface of a database: ranges to plan, rows to read, a corrector to write."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol

from oplogd.model.event_id import Mark
from oplogd.model.names import TopicName
from oplogd.store import Corrector, LogBounds
from oplogd.store.pointers import OpenPointer
from oplogd.store.topics import TopicLog

# A chunk ends at this many rows, or with the row that makes its data this large: states may have
# 64 KiB each.
CHUNK_ROWS = 10_000
CHUNK_BYTES = 8 << 20

# Rows after the first bound, up to and including the second. The bounds are offsets for operations,
# and values of the backend's own for states.
Range = tuple[Any, Any]


# Open pointers read together: all that there are. Each costs some hundred bytes for a moment.
MOST_POINTERS = 1_000_000


class StoreRow(NamedTuple):
    """A state or an entry of the log. ``data``: the JSON text for consumers."""

    key: str
    event: str
    offset: int
    ms: int
    data: str


class Wanted(NamedTuple):
    """Conditions on the rows to read. A backend may return more rows.

    None is no condition. Bounds are inclusive. ``types``, ``events``: any of these. ``parents``:
    an object with any of these. ``data`` False: StoreRow.data may be empty.
    ``fresh``: the states as they were after this offset, or later.
    """

    types: frozenset[str] | None = None
    events: frozenset[str] | None = None
    parents: frozenset[str] | None = None
    ms: tuple[int | None, int | None] = (None, None)
    offset: tuple[int | None, int | None] = (None, None)
    data: bool = True
    fresh: int | None = None

    def of_states(self) -> "Wanted":
        """Return the conditions for states in place of operations: an update is an insert there."""
        if self.events is None or "update" not in self.events:
            return self
        return self._replace(events=self.events | {"insert"})


class NewLog(NamedTuple):
    """Settings of a new store. ``cap_bytes`` None: the default. ``collection``: in MongoDB."""

    cap_bytes: int | None = None
    collection: Literal["capped", "plain"] = "capped"


NEW_LOG = NewLog()


class OpenTopic(NamedTuple):
    """One generation of a topic, open for reading.

    ``open_pointers`` returns its open pointers, the oldest first: MOST_POINTERS at most. ``store``:
    identity of the store, None if it is damaged or not made yet.
    """

    log: TopicLog
    open_pointers: Callable[[], Awaitable[list[OpenPointer]]]
    store: str | None


class Backend(Protocol):
    """Reads one store. Raises StoreError, and StoreUnavailableError if a retry makes sense.

    Spark pickles it for its workers, so it holds no connection.
    """

    # Only the machine of the store can read it.
    needs_local_master: bool

    # A writer's transaction makes all other writers wait.
    writers_wait: bool

    @property
    def name(self) -> str:
        """Return the store's name for messages, without credentials."""

    def exists(self) -> bool:
        """Return False if a corrector would create the store."""

    def check(self) -> None:
        """Raise StoreError unless this version can read the store."""

    def state_count(self) -> int:
        """Return about how many states there are."""

    def state_ranges(self, rows: int) -> list[Range]:
        """Divide all current states into ranges of about ``rows`` states each."""

    def states(self, part: Range, wanted: Wanted) -> Iterator[list[StoreRow]]:
        """Yield the states of a range in chunks, each chunk as it is when it is read."""

    def find(self, keys: Sequence[str]) -> list[StoreRow]:
        """Return the states of these keys in any order. Keys without a state are left out."""

    def operations(self, part: Range, wanted: Wanted) -> Iterator[list[StoreRow]]:
        """Yield the entries of a range in offset order. Entries gone from the log are absent."""

    def locate(self, offset: int) -> LogBounds: ...

    def topic(self, name: TopicName) -> AbstractAsyncContextManager[OpenTopic]:
        """Open a topic. Raises TopicNotFoundError."""

    def seek(self, ms: int) -> Mark:
        """Return the last entry logged up to a time. Offset 0: there is none."""

    def settle(self) -> None:
        """Wait until the states hold every present entry of the log. Fold it if no agent does."""

    async def corrector(self, new: NewLog = NEW_LOG) -> Corrector:
        """Return an open corrector. ``new`` applies if this creates the store."""


def split(whole: tuple[int, int], width: int) -> list[Range]:
    """Divide a range of numbers into ranges of at most ``width`` numbers."""
    first, last = whole
    return [(after, min(after + width, last)) for after in range(first, last, width)]
