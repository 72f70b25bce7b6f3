"""The ring: the newest entries in memory, encoded once for all consumers. No I/O.

It knows the marks and the blocks of entries; its route knows the rest. A ``View`` reads the entries
of one filter when a consumer asks. Consumers with equal filters share it. A view uses postings, so
the cost of an operation depends on its listed values, not on the number of views.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from oplogd.model.event_id import Mark
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Route
from oplogd.stream.ring.holds import Holds
from oplogd.stream.ring.index import Index
from oplogd.stream.ring.postings import Posting, Waiter
from oplogd.stream.ring.view import Slices, View
from oplogd.stream.ring.window import Routed, Window

# Filters without postings: every entry concerns their views.
_EVERYTHING = (Filter(), Filter(committed=True))

# Views looked at in one piece of waking, about a millisecond of work.
_MOST_VISITED = 20_000


class Ring:
    """The newest entries: at most ``max_entries`` and ``max_bytes`` of memory, at least one.

    Holds every entry past ``base`` and up to ``head``. ``epoch`` grows when the log did not
    continue at the head: then each consumer checks its mark. ``wake`` gets the consumers with
    something new to read.
    """

    def __init__(
        self,
        route: Route,
        max_entries: int,
        max_bytes: int,
        wake: Callable[[Iterable[Waiter]], None],
        *,
        slices: Slices | None = None,
        index: Index | None = None,
        has_sequences: bool = False,
    ) -> None:
        """``slices`` and ``index``: shared by several rings, otherwise own ones."""
        self._route = route
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.head = Mark(0, 0)
        self.window = Window(self.head, has_sequences=has_sequences)
        self.slices = Slices() if slices is None else slices
        self.wake = wake
        self.epoch = 0
        self.views: dict[Filter, View] = {}
        self.index = Index() if index is None else index
        # The consumers waiting for decisions. None waits in the oplog.
        self.holds = Holds()
        # Postings of new entries whose views have not been looked at yet.
        self._touched: dict[Posting, None] = {}

    @property
    def base(self) -> int:
        """The offset behind which the ring holds every entry."""
        return self.window.base

    def restart(self, head: Mark) -> None:
        """Drop all entries, continue behind ``head`` and wake all consumers."""
        self.window = Window(head, has_sequences=self.window.sequences is not None)
        self.slices.clear()
        self.head = head
        self.epoch += 1
        self.index.restart(head)
        self._touched.clear()
        due: list[Waiter] = []
        for view in self.views.values():
            view.restart()
            view.move_waiting(due)
        self.holds.end_all(due)
        self.wake(due)

    def append(self, entries: Iterable[Any]) -> None:
        """Add entries behind the head without a gap, then wake their consumers.

        Blocks the event loop meanwhile. The caller appends a long batch in pieces, and calls
        ``wake_more`` after each.
        """
        route, index = self._route, self.index
        routed: list[Routed] = []
        try:
            for entry in entries:
                routed.append(route(entry, index))
        finally:
            if routed:
                self._hold(routed)
                self.slices.clear()
                self._wake_followers_of_all()
                self.wake_more()

    def _hold(self, routed: Sequence[Routed]) -> None:
        """Hold new entries, and drop the oldest if there are too many."""
        window, touched = self.window, self._touched
        window.extend(routed)
        self.head = routed[-1][0]
        for mark, _, postings in routed:
            for posting in postings:
                posting.add(mark.offset)
                touched[posting] = None
        if len(window) > self.max_entries or window.size > self.max_bytes:
            for offset, dropped in window.trim(self.max_entries, self.max_bytes):
                for posting in dropped:
                    posting.drop(offset)

    def wake_more(self) -> bool:
        """Wake more consumers of new entries. Return whether some are left: then call it again."""
        due: list[Waiter] = []
        touched = self._touched
        looked_at = visited = 0
        for posting in touched:
            looked_at += 1
            visited += len(posting.views)
            for view in posting.views:
                if view.waiting:
                    view.move_waiting(due)
            if visited >= _MOST_VISITED:
                break
        if looked_at == len(touched):
            touched.clear()
        else:
            for posting in list(islice(touched, looked_at)):
                del touched[posting]
        if due:
            self.wake(due)
        return bool(touched)

    def drop(self) -> None:
        """Drop the oldest entry."""
        window = self.window
        offset = window.base + 1
        for posting in window.drop():
            posting.drop(offset)

    def void(self, offset: int) -> None:
        """Replace the block of an entry by an empty one. The ring may have dropped the entry."""
        if self.base < offset <= self.head.offset:
            self.window.void(offset)
            self.slices.clear()

    def expire(self) -> None:
        """Remove entries that no reader may see any more. Nothing expires in the oplog."""

    def has_expired(self, entry: Any) -> bool:
        """Return whether an entry is unreadable for all. The ring may have dropped it."""
        return False

    def view(self, filter_: Filter) -> View:
        """Return the shared view of a filter; ``release`` must follow.

        Raises TooManyShardsError.
        """
        view = self.views.get(filter_)
        if view is None:
            view = self.views[filter_] = self._new_view(filter_)
        view.users += 1
        return view

    def release(self, view: View) -> None:
        """Undo one call of ``view``. A view without users is dropped."""
        view.users -= 1
        if view.users == 0:
            self._drop_view(view)

    def _new_view(self, filter_: Filter) -> View:
        return View(self, filter_, self.index)

    def _drop_view(self, view: View) -> None:
        del self.views[view.filter]
        self.index.unlist(view)

    def _wake_followers_of_all(self) -> None:
        due: list[Waiter] = []
        for filter_ in _EVERYTHING:
            if view := self.views.get(filter_):
                view.move_waiting(due)
        if due:
            self.wake(due)
