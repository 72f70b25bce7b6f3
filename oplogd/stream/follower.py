"""The follower: takes new entries of the log from the store. So consumers get only durable ones."""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.store import Entry, Store
from oplogd.store.topics import TopicEntry
from oplogd.stream.ring.ring import Ring
from oplogd.watch.health import Health
from oplogd.watch.latency import LatencyProbe

_BATCH = 2_000

# After a wait of this length without an entry, check that the log is still the one followed.
_IDLE_SECONDS = 1.0

_RETRY_SECONDS = 1.0

# Most entries appended to the ring at once, and most bytes of their data: a few milliseconds.
_PIECE = 128
_PIECE_BYTES = 128 * 1024

# Longest work without a break.
_WORK_SECONDS = 0.005

_E = TypeVar("_E", Entry, TopicEntry)

logger = logging.getLogger("oplogd.follower")


class Pace:
    """Breaks in long work. Call ``rest`` after each piece: it lets the event loop do other work."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + _WORK_SECONDS

    async def rest(self) -> None:
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + _WORK_SECONDS


async def follow(
    store: Store, ring: Ring, health: Health, latency: LatencyProbe | None = None
) -> None:
    """Follow the log until cancelled. A ring without a mark in the log starts at its head."""
    part = health.part("follower")
    pace = Pace()
    while True:
        try:
            if not ring.epoch:
                ring.restart((await store.locate()).head)
                if latency:
                    latency.give_up()
            await advance(store, ring, _IDLE_SECONDS, latency, pace)
            part.good()
        except StoreUnavailableError as error:
            part.bad(str(error))
            await asyncio.sleep(_RETRY_SECONDS)


async def advance(
    store: Store,
    ring: Ring,
    seconds: float,
    latency: LatencyProbe | None = None,
    pace: Pace | None = None,
) -> None:
    """Append the entries past the ring's head; wait up to ``seconds`` for the first.

    Restart the ring if the log does not continue there. Raises StoreUnavailableError. ``pace``: of
    several calls, since the store need not wait in any of them.
    """
    head = ring.head
    entries: list[Entry] = []
    try:
        entries = await store.follow(head.offset, _BATCH, seconds, head.ms)
    except LogReplacedError:
        lost = True
    else:
        offsets = range(head.offset + 1, head.offset + 1 + len(entries))
        lost = any(entry.offset != offset for entry, offset in zip(entries, offsets, strict=True))
        if not entries:
            bounds = await store.locate(head.offset)
            lost = bounds.head.offset < head.offset or bounds.at_ms not in (None, head.ms)
    if not lost:
        await _feed(ring, entries, latency, pace or Pace())
        return
    bounds = await store.locate()
    logger.warning(
        "the log does not continue at offset %d: following it from %d, consumers get states",
        ring.head.offset + 1,
        bounds.head.offset,
    )
    ring.restart(bounds.head)
    if latency:
        latency.give_up()


async def _feed(
    ring: Ring, entries: Sequence[Entry], latency: LatencyProbe | None, pace: Pace
) -> None:
    """Append in pieces. Give way to the event loop after some milliseconds of work."""
    for piece in pieces(entries):
        ring.append(piece)
        if latency:
            latency.end(piece)
        await pace.rest()
        while ring.wake_more():
            await pace.rest()


def pieces(entries: Sequence[_E]) -> Iterator[Sequence[_E]]:
    """Split entries into pieces. A ring appends each in a few milliseconds."""
    first = size = 0
    for end, entry in enumerate(entries, 1):
        size += len(entry.data)
        if size >= _PIECE_BYTES or end - first == _PIECE or end == len(entries):
            yield entries[first:end]
            first, size = end, 0
