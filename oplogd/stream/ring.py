"""The ring: the newest entries in memory, encoded once for all consumers. No I/O.

A ``View`` reads the entries that pass one filter when a consumer asks for them; consumers with
equal filters share it. It finds them by postings, so the cost of an operation depends on the listed
values that it carries, not on the number of views.
"""

from collections.abc import Callable, Iterable

from oplogd.event_id import Mark
from oplogd.store import Entry, decode_stored
from oplogd.stream.filters import Filter
from oplogd.stream.frames import Framer
from oplogd.stream.postings import Index, Posting
from oplogd.stream.view import Slices, View, Waiter
from oplogd.stream.window import Window

_EVERYTHING = Filter()


class Ring:
    """The newest entries, at most ``max_entries`` of them and ``max_bytes`` of memory.

    Holds every entry past ``base`` and up to ``head``. ``epoch`` grows when the log did not
    continue at the head: then each consumer checks its mark. ``wake`` is called with the consumers
    that have something new to read.
    """

    def __init__(
        self,
        framer: Framer,
        max_entries: int,
        max_bytes: int,
        wake: Callable[[Iterable[Waiter]], None],
    ) -> None:
        self._framer = framer
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.window = Window(0)
        self.slices = Slices()
        self.wake = wake
        self.head = Mark(0, 0)
        self.epoch = 0
        self.views: dict[Filter, View] = {}
        self.index = Index()

    @property
    def base(self) -> int:
        """The offset behind which the ring holds every entry."""
        return self.window.base

    def restart(self, head: Mark) -> None:
        """Drop all entries, continue behind ``head`` and wake all consumers."""
        self.window = Window(head.offset)
        self.slices.clear()
        self.head = head
        self.epoch += 1
        self.index.restart(head)
        due: list[Waiter] = []
        for view in self.views.values():
            view.restart()
            view.move_waiting(due)
        self.wake(due)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries that follow the head without a gap, then wake the consumers of any of them.

        Blocks the event loop meanwhile: the caller appends a long batch in pieces.
        """
        before = self.head
        touched: dict[Posting, None] = {}
        try:
            for entry in entries:
                data = decode_stored(entry.data)
                postings = self.index.postings_of(data)
                self.window.append(entry.ms, self._framer.entry(entry, data), postings)
                self.head = Mark(entry.offset, entry.ms)
                for posting in postings:
                    posting.add(entry.offset)
                    touched[posting] = None
                self._trim()
        finally:
            if self.head != before:
                self.slices.clear()
                self._wake(touched)

    def view(self, filter_: Filter) -> View:
        """Return the shared view of a filter; ``release`` must follow."""
        view = self.views.get(filter_)
        if view is None:
            view = self.views[filter_] = View(self, filter_, self.index)
        view.users += 1
        return view

    def release(self, view: View) -> None:
        """Undo one call of ``view``. A view without users is dropped."""
        view.users -= 1
        if view.users == 0:
            del self.views[view.filter]
            self.index.unlist(view)

    def _wake(self, touched: Iterable[Posting]) -> None:
        due: list[Waiter] = []
        if everything := self.views.get(_EVERYTHING):
            everything.move_waiting(due)
        for posting in touched:
            for view in posting.views:
                if view.waiting:
                    view.move_waiting(due)
        if due:
            self.wake(due)

    def _trim(self) -> None:
        """Drop the oldest entries over the bounds, but never the newest one."""
        window = self.window
        while len(window) > 1 and (len(window) > self.max_entries or window.size > self.max_bytes):
            offset = window.base + 1
            for posting in window.drop():
                posting.drop(offset)
