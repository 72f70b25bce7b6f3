"""Reads the log in order as it grows and feeds the ring. Consumers get only entries that were read back from the store."""

import asyncio
import logging
from collections.abc import Sequence

from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.health import Health
from oplogd.passage import Passage
from oplogd.store import Entry, Store
from oplogd.stream.pace import Pace
from oplogd.stream.ring import Ring

_BATCH = 2_000
_IDLE_SECONDS = 1.0
"""How long to wait for an entry before asking whether the log still is the one that was followed."""

_RETRY_SECONDS = 1.0
_PIECE = 128
_PIECE_BYTES = 128 * 1024
"""Entries appended to the ring at once, and the length of their data, at most: some milliseconds of work."""

logger = logging.getLogger("oplogd.follower")


async def follow(store: Store, ring: Ring, health: Health, passage: Passage | None = None) -> None:
    """Run for ever. A ring that was not started at a place of the log yet is started at its head."""
    part = health.part("follower")
    while True:
        try:
            if not ring.epoch:
                ring.restart((await store.locate()).head)
                if passage:
                    passage.give_up()
            await advance(store, ring, _IDLE_SECONDS, passage)
            part.good()
        except StoreUnavailableError as error:
            part.bad(str(error))
            await asyncio.sleep(_RETRY_SECONDS)


async def advance(store: Store, ring: Ring, seconds: float, passage: Passage | None = None) -> None:
    """Take what the log has past the ring's head, waiting up to ``seconds`` for it. Raises StoreUnavailableError."""
    head = ring.head
    entries: list[Entry] = []
    try:
        entries = await store.follow(head.offset, _BATCH, seconds, head.ms)
    except LogReplacedError:
        lost = True
    else:
        numbers = range(head.offset + 1, head.offset + 1 + len(entries))
        lost = any(entry.offset != number for entry, number in zip(entries, numbers, strict=True))
        if not entries:
            located = await store.locate(head.offset)
            lost = located.head.offset < head.offset or located.at_ms not in (None, head.ms)
    if not lost:
        await _feed(ring, entries, passage)
        return
    located = await store.locate()
    logger.warning(
        "the log does not go on at offset %d: continuing at %d, consumers catch up from the states",
        ring.head.offset + 1,
        located.head.offset,
    )
    ring.restart(located.head)
    if passage:
        passage.give_up()


async def _feed(ring: Ring, entries: Sequence[Entry], passage: Passage | None) -> None:
    """Append in pieces, and let the event loop do all else in between when they have taken some milliseconds."""
    pace = Pace()
    first = size = 0
    for end, entry in enumerate(entries, 1):
        size += len(entry.data)
        if size >= _PIECE_BYTES or end - first == _PIECE or end == len(entries):
            piece = entries[first:end]
            ring.append(piece)
            if passage:
                passage.end(piece)
            first, size = end, 0
            await pace.rest()
