"""Rings, and the bytes expected from them."""

from collections.abc import Iterable

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation, decode_data
from oplogd.store import Entry
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.postings import Waiter
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.view import View
from tests.kits.models.operations import entry

HUGE = 10**9


def wake_all(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


def make_ring(max_entries: int = HUGE, max_bytes: int = HUGE, head: Mark = Mark(0, 0)) -> Ring:
    ring = Ring(Framer().route, max_entries, max_bytes, wake_all)
    ring.restart(head)
    return ring


def follow_on(ring: Ring, made: list[Operation]) -> list[Entry]:
    """Append these as the next entries of the log."""
    first = ring.head.offset + 1
    entries = [entry(offset, 1000 + offset, op) for offset, op in enumerate(made, first)]
    ring.append(entries)
    return entries


def frame(given_: Entry) -> bytes:
    return Framer().entry(given_, decode_data(given_.data))


def passing(entries: list[Entry], filter_: Filter, after: int = 0) -> list[bytes]:
    return [
        frame(e)
        for e in entries
        if e.offset > after and filter_.matches(e.event, decode_data(e.data))
    ]


def drain(view: View, after: int, max_bytes: int = HUGE) -> bytes:
    """Take until the head is reached."""
    taken = b""
    head = view.ring.head.offset
    while after < head:
        chunk, count, reached = view.take(after, max_bytes)
        assert reached.offset > after
        assert chunk.count(b"\n\n") == count
        assert count <= 1 or len(chunk) <= max_bytes
        taken += chunk
        after = reached.offset
    return taken


class Sleeper:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1
