"""This process's knowledge of the log. No I/O."""

from collections.abc import Callable

from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.notifier import Notifier
from oplogd.store.mongo.link.timing import RECENT_SECONDS


class KnownLog:
    """Hints about the log that every use checks. ``Log`` owns it.

    Other parts read the attributes, and report news through the methods.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._head_at = float("-inf")
        # Notifies of entries that were appended or seen by this process.
        self.appended = Notifier()
        # The newest entry seen.
        self.head = Mark(0, 0)
        # The oldest entry seen.
        self.oldest = Mark(0, 0)
        # The checkpoint's offset as last seen.
        self.folded = 0
        # Size of the capped collection, 0 for a plain log.
        self.capped_bytes = 0

    @property
    def is_recent(self) -> bool:
        """Whether ``head`` was seen so recently that it can be no stray."""
        return self._clock() - self._head_at <= RECENT_SECONDS

    def saw_entry(self, mark: Mark) -> None:
        """Note an entry as the head if it is newer.

        It is recent only if it follows a recent one: otherwise it may be a stray.
        """
        if mark.offset > self.head.offset:
            self.head = mark
            if self.is_recent:
                self._head_at = self._clock()

    def saw_head(self, mark: Mark, asked_at: float) -> None:
        """Note the head that a look-up found. After a restore it may be older."""
        self.head, self._head_at = mark, asked_at

    def saw_bounds(self, head: Mark, oldest: Mark, asked_at: float) -> None:
        self.saw_head(head, asked_at)
        self.oldest = oldest

    def saw_empty(self, head: Mark) -> None:
        """Note an empty log that continues behind ``head``."""
        self.head = head

    def saw_checkpoint(self, offset: int) -> None:
        self.folded = offset

    def saw_cap(self, capped_bytes: int) -> None:
        self.capped_bytes = capped_bytes
