"""What the data source needs of a database: ranges to plan, rows to read, a corrector to write."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol

from oplogd.store import Corrector, LogBounds

Range = tuple[Any, Any]
"""Rows past the first up to and with the second. Of operations these are offsets, of states what the backend planned."""


class Row(NamedTuple):
    """A state, or an operation of the log, as it is stored.

    ``n`` is its offset, ``ms`` the time in its event id, ``data`` the JSON text that consumers get.
    """

    key: str
    event: str
    n: int
    ms: int
    data: str


class Wanted(NamedTuple):
    """What a reader asks for; None is no condition and bounds are inclusive. A backend may return more, never less.

    ``types`` and ``events`` are any of these. ``logged`` bounds Row.ms; ``timestamp`` bounds the operation's own time
    in the stored form, which sorts as text; ``n`` bounds the offset.
    """

    types: frozenset[str] | None = None
    events: frozenset[str] | None = None
    logged: tuple[int | None, int | None] = (None, None)
    timestamp: tuple[str | None, str | None] = (None, None)
    n: tuple[int | None, int | None] = (None, None)
    data: bool = True
    """False: Row.data may be empty."""


class NewLog(NamedTuple):
    """How to create a store that is not there yet. What is there already stays as it is.

    ``cap_bytes`` None is the default; ``collection`` counts on MongoDB only.
    """

    cap_bytes: int | None = None
    collection: Literal["capped", "plain"] = "capped"


NEW_LOG = NewLog()


class Backend(Protocol):
    """Reads one store. Errors are StoreError, and StoreUnavailableError where trying again makes sense.

    It is sent to Spark's workers, so it holds no connection.
    """

    needs_local_master: bool
    """Whether only the machine that holds the store can read it."""

    writers_wait: bool
    """Whether a writer's transaction makes all other writers wait."""

    @property
    def name(self) -> str:
        """What to call the store in a message: no credentials."""

    def exists(self) -> bool:
        """False where opening the corrector would create the store."""

    def check(self) -> None:
        """Raise StoreError unless there is a store that this version can read."""

    def state_ranges(self, rows: int) -> list[Range]:
        """Ranges of about so many states that cover all there are now."""

    def states(self, part: Range, wanted: Wanted) -> Iterator[list[Row]]:
        """The states of a range in chunks, each as it is when its chunk is read."""

    def operations(self, part: Range, wanted: Wanted) -> Iterator[list[Row]]:
        """The log's entries with an offset in the range, in order, without those that have left the log."""

    def locate(self, offset: int) -> LogBounds: ...

    def settle(self) -> None:
        """Return once the states hold every operation that is in the log at the call; fold them if nobody else does."""

    def corrector(self, new: NewLog = NEW_LOG) -> Corrector:
        """Not yet open. ``new`` counts where opening it creates the store."""


def split(whole: tuple[int, int], width: int) -> list[Range]:
    """A range in parts of at most ``width`` numbers."""
    first, last = whole
    return [(after, min(after + width, last)) for after in range(first, last, width)]
