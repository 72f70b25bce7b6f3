"""The interface between the agent and the pointers of foreign transactions in a store."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import stamp, unstamp
from oplogd.model.pointer import Decision
from oplogd.store.transactions import Decisions, OpenStats, RecordLimits


class OpenPointer(NamedTuple):
    """A pointer without a decision in a topic. Times are ms since 1970 by the store's clock.

    ``expires_ms``: of its time-out. ``has_entries``: something was published under it. Otherwise
    messages are only stored.
    """

    pointer: int
    begun_ms: int
    expires_ms: int
    has_entries: bool


class TimedOutPointer(NamedTuple):
    """A pointer timed out in a topic with messages, and not reported since.

    Times are ms since 1970 by the store's clock. ``ended_ms``: of the time-out.
    """

    pointer: int
    begun_ms: int
    ended_ms: int


def runs_of(offsets: Collection[int]) -> list[tuple[int, int]]:
    """Return offsets as runs: the first offset and the number of each, ascending."""
    runs: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if runs and runs[-1][0] + runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((offset, 1))
    return runs


class PointerKey(NamedTuple):
    """The place of an open pointer in a list: the oldest first. It does not change."""

    begun_ms: int
    pointer: int
    log: int


class FoundPointer(NamedTuple):
    """An open pointer, and the log in which it is open."""

    log: int
    open: OpenPointer

    @property
    def key(self) -> PointerKey:
        return PointerKey(self.open.begun_ms, self.open.pointer, self.log)


class Marks:
    """The marks of entries in the order of their log, in 16 bytes each."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._offsets = array("q")
        self._stamps = array("q")
        for each in marks:
            self.append(each)

    def append(self, mark: Mark) -> None:
        self._offsets.append(mark.offset)
        self._stamps.append(stamp(mark.ms, mark.sequence))

    @property
    def last(self) -> Mark:
        return Mark(self._offsets[-1], *unstamp(self._stamps[-1]))

    def __len__(self) -> int:
        return len(self._stamps)

    def __iter__(self) -> Iterator[Mark]:
        for offset, number in zip(self._offsets, self._stamps, strict=True):
            yield Mark(offset, *unstamp(number))


class Pointers(Protocol):
    """Messages under pointers, in each topic on its own.

    A pointer is open in a topic from its first message there until its decision: ``decide``
    appends one COMMIT or ABORT entry, the last entry of the pointer in this log. The pointer is
    registered before its first entry goes in. It has ``timeout_ms`` from its first entry on. Before
    an entry, from the last ``store`` on.

    Every method may raise StoreUnavailableError. Those with a ``log`` raise TopicNotFoundError
    after the topic was deleted. Methods may be called concurrently.

    ``publish``, ``store`` and ``publish_stored`` follow the rules of the topic: see
    ``PointerRules``. They raise TransactionConflictError if it takes nothing under pointers. Its
    own time-out counts in place of ``timeout_ms``.
    """

    # The agent may replace it before the start.
    decisions: Decisions

    async def publish(
        self, log: int, pointer: int, messages: Sequence[Message], timeout_ms: int
    ) -> Marks:
        """Append a DIRECT entry for each message. Return their marks.

        They are durable when the call returns. All of them or none. A repeated call appends them
        again. Raises TransactionConflictError if the pointer is decided, and MessageError if
        messages are stored under it and not published (see ``pointer.stored_before``).
        """

    async def store(
        self,
        log: int,
        pointer: int,
        messages: Sequence[Message],
        timeout_ms: int,
        limits: RecordLimits,
    ) -> None:
        """Store messages for later: no reader sees them. They are durable when the call returns.

        Each gets the next write stamp of this pointer in this log: larger than all before. Raises
        TransactionConflictError if the pointer is decided, and TransactionTooLargeError if more
        than ``limits`` would be stored and not published.
        """

    async def publish_stored(self, log: int, pointer: int, timeout_ms: int) -> Mark | None:
        """Append a PUBLISH entry for the messages stored and not yet published.

        Return its mark. A message stored later is not among them. If there are none since
        the last PUBLISH entry, return the mark of this entry, also for a decided pointer.
        Do nothing and return None if no message was ever stored. Raises TransactionConflictError if
        the pointer is decided, and MessageError if what was stored is rolled back (see
        ``pointer.nothing_stored``).
        """

    async def rollback(
        self, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool = False
    ) -> Mark | None:
        """Void the entries of a pointer with these stamps. None: all, and all stored messages.

        They are voided in place, with the stored messages of PUBLISH entries. One VOID entry names
        them: see ``Voided``. Return its mark, or None if nothing was left to void. Other entries
        with these stamps stay as they are. A repeated call or ``keep`` completes a call cut short.

        A rollback decides nothing, except after the time-out: then it is a report of an abort in
        this topic. Raises TransactionConflictError if the pointer was reported as committed there,
        as judged with the append. ``force``: void these entries, too. Readers learn of a gap, see
        ``TopicBounds.purged``.
        """

    async def decide(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        """Append a COMMIT or ABORT entry to each of these logs, once. Return its mark by log.

        Also where nothing was published yet: a later publish is refused. Stored and unpublished
        messages are removed.

        A report is for all of its logs or for none. Raises TransactionConflictError, with no effect
        in any log, if the pointer was reported otherwise in one of these logs. Once a part of it is
        done, a repeated call or ``keep`` does the rest. A repeated call returns the same.

        Where the pointer has timed out, a commit appends its messages once more as LATE entries,
        and returns the mark of the last one. Without any: of the time-out. An abort lets the sweep
        void its entries.
        """

    async def select(
        self, log: int, limit: int, after: PointerKey | None = None
    ) -> list[OpenPointer]:
        """Return open pointers of a topic past a key, the oldest first."""

    async def select_all(self, limit: int, after: PointerKey | None = None) -> list[FoundPointer]:
        """Return open pointers of all topics past a key, the oldest first.

        Those of deleted topics may be among them.
        """

    async def timed_out(self, log: int, limit: int) -> list[TimedOutPointer]:
        """Return pointers of a topic with a time-out and messages, the oldest first.

        They leave this list with a report, or with the entry of the time-out.
        """

    async def keep(self) -> int:
        """Decide overdue pointers as TIMED_OUT, complete reports and rollbacks, remove what is left
        behind.

        Return the number of time-outs and rollbacks. Of several agents on one store only one does
        this.
        """

    async def stats(self) -> OpenStats: ...
