"""Postings: the entries of the ring with values listed by some filter. No I/O.

A posting belongs to one key: an id, a parent or two, a type, an event, or several of these, in one
shard or in all of them. It holds the ascending offsets of its entries from the moment the key was
first listed.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.keys import Key

_COMPACT = 64


class Waiter(Protocol):
    """A consumer waiting for entries."""

    def wake(self) -> None:
        """Read them now."""


class Listing:
    """A view, as the postings of its filter know it. ``waiting``: consumers to wake."""

    __slots__ = ("filter", "postings", "waiting")

    filter: Filter
    postings: "frozenset[Posting]"
    waiting: dict[Waiter, None]

    def move_waiting(self, due: list[Waiter]) -> None:
        """Move the waiting consumers to ``due``."""
        due += self.waiting
        self.waiting.clear()


class Posting:
    """The offsets of the entries past ``since`` with the values of one key.

    ``dropped``: offsets up to this one may be missing. ``last``: the newest offset, ``since`` if
    there is none. ``views``: the views listing the key.
    """

    __slots__ = ("alone", "dropped", "first", "key", "last", "offsets", "since", "views")

    def __init__(self, key: Key, since: int) -> None:
        self.key = key
        self.views: dict[Listing, None] = {}
        self.alone: tuple[Posting, ...] = (self,)
        self.restart(since)

    def restart(self, since: int) -> None:
        self.since = self.dropped = self.last = since
        self.first = 0
        self.offsets = array("Q")

    def add(self, offset: int) -> None:
        self.offsets.append(offset)
        self.last = offset

    def drop(self, offset: int) -> None:
        """Remove ``offset`` if it is the oldest one."""
        if self.first == len(self.offsets) or self.offsets[self.first] != offset:
            return
        self.first += 1
        self.dropped = offset
        if self.first >= _COMPACT and self.first * 2 > len(self.offsets):
            del self.offsets[: self.first]
            self.first = 0

    def after(self, offset: int) -> int:
        """Return the index of the first offset past ``offset``."""
        return bisect_right(self.offsets, offset, self.first)

    def run(self, index: int) -> Iterator[int]:
        """Return the offsets from ``index`` on."""
        offsets = self.offsets
        return (offsets[i] for i in range(index, len(offsets)))
