"""The common part of the phases that read a log from the store, and may have to wait there."""

from collections.abc import Iterable, Mapping

from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision
from oplogd.store.topics import TopicEntry
from oplogd.stream.phases.live import LogPhase
from oplogd.stream.phases.phase import Subscription
from oplogd.stream.ring.holds import Hold


class StorePhase(LogPhase):
    """Waits at an entry whose pointer is open, until its hold is over.

    It looks the pointer up a second time after it has the hold: a decision that the store does not
    have by then passes the ring later. So no decision is missed, and no look-up is repeated while
    nothing happens.
    """

    __slots__ = ("_entry", "_taken")

    def __init__(
        self, subscription: Subscription, mark: Mark, epoch: int, first_offset: int
    ) -> None:
        super().__init__(subscription, mark, epoch, first_offset)
        # The hold of the pointer that the last look-up has found open.
        self._taken: Hold | None = None
        # The entry at which the phase waits.
        self._entry: TopicEntry | None = None

    async def decisions(self, entries: Iterable[TopicEntry]) -> Mapping[int, Decision]:
        """Return the decisions of the pointers of entries read before."""
        pointers: set[int] = set()
        if self.view.filter.committed:
            pointers = {entry.pointer for entry in entries if entry.pointer is not None}
        return await self.subscription.feed.bridge.decisions(pointers) if pointers else {}

    def stop(self, entry: TopicEntry) -> None:
        """Wait for a pointer that was found open, or look it up again if it is the first time."""
        pointer = entry.pointer
        assert pointer is not None
        self._entry = entry
        taken = self._taken
        if taken is None or taken.is_over or taken.pointer != pointer:
            self._taken = self.ring.holds.of(pointer)
        else:
            self.hold = taken

    def look_again(self) -> None:
        """Stop waiting if the entry is no longer readable, although its pointer is open.

        By a clock that is ahead of the store's, this is early: then the phase waits again.
        """
        if self._entry is not None and self.ring.has_expired(self._entry):
            self.hold = self._taken = self._entry = None
