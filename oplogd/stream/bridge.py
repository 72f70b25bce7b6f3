"""Bridges: how the consumers of one kind of log begin, and go on when the log does not continue."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from oplogd.event_id import Mark
from oplogd.pointer import Decision
from oplogd.store.topics import TopicEntry, TopicRecord
from oplogd.stream.filters import Filter
from oplogd.stream.phase import Phase, Step, Subscription

if TYPE_CHECKING:
    from oplogd.stream.live import LogPhase


class Bridge(Protocol):
    """Knows the positions, the entries and the store of a log; consumers know only marks.

    Coroutines raise StoreUnavailableError; then call them again. After a topic was deleted they
    raise TopicNotFoundError.
    """

    async def begin(self, subscription: Subscription, position: Any, *, greeting: bool) -> Phase:
        """Return the first phase of a consumer that asks for ``position``; None: behind the head.

        ``greeting``: send a checkpoint first, unless the consumer does not continue there.
        """

    async def resume(self, phase: "LogPhase") -> Step:
        """Continue as if the consumer reconnected at the phase's mark.

        The log was trimmed past that mark, or another log may have replaced it.
        """

    async def read(self, mark: Mark, limit: int) -> Sequence[Any]:
        """Return up to ``limit`` entries past a mark. The first may lie further on: some are gone.

        Raises LogReplacedError if the log does not continue at the mark.
        """

    def may_expand(self, entries: Sequence[Any], filter_: Filter) -> bool:
        """Return whether ``passing`` does not suffice for these entries."""

    def passing(self, entry: Any, filter_: Filter) -> tuple[Mark, bytes]:
        """Return the mark of an entry, and its block; empty if it does not pass the filter."""

    async def entry_at(self, mark: Mark) -> TopicEntry | None:
        """Return the entry at a mark; None if it has left the log."""

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> Sequence[TopicRecord]:
        """Return records of a COMMIT or PUBLISH entry: see ``TopicLog.expand``."""

    async def decisions(self, pointers: Collection[int]) -> Mapping[int, Decision]:
        """Return the decisions of pointers: see ``TopicLog.decisions``."""

    def position(self, mark: Mark, first_offset: int) -> str:
        """Return the position from which a consumer that is at ``mark`` resumes.

        ``first_offset``: see ``LogPhase``.
        """
