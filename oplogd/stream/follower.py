"""Reads the log in order as it grows and feeds the ring. What consumers get was read back from the store."""

import asyncio
import logging

from oplogd.errors import StoreUnavailableError
from oplogd.health import Health
from oplogd.store import Store
from oplogd.stream.ring import Ring

_BATCH = 2_000
_IDLE_SECONDS = 1.0
"""How long to wait for an entry before asking whether the log still is the one that was followed."""

_RETRY_SECONDS = 1.0
_log = logging.getLogger("oplogd.follower")


async def follow(store: Store, ring: Ring, health: Health) -> None:
    """Run for ever. A ring that was not started at a place of the log yet is started at its head."""
    part = health.part("follower")
    while True:
        try:
            if not ring.epoch:
                ring.restart((await store.locate()).head)
            await advance(store, ring, _IDLE_SECONDS)
            part.good()
        except StoreUnavailableError as error:
            part.bad(str(error))
            await asyncio.sleep(_RETRY_SECONDS)


async def advance(store: Store, ring: Ring, seconds: float) -> None:
    """Take what the log has past the ring's head, waiting up to ``seconds`` for it. Raises StoreUnavailableError."""
    entries = await store.follow(ring.head.offset, _BATCH, seconds)
    if not entries:
        located = await store.locate()
        lost = located.head.offset < ring.head.offset
    else:
        numbers = range(ring.head.offset + 1, ring.head.offset + 1 + len(entries))
        lost = any(entry.offset != number for entry, number in zip(entries, numbers, strict=True))
    if not lost:
        ring.append(entries)
        return
    located = await store.locate()
    _log.warning(
        "the log does not go on at offset %d: continuing at %d, consumers catch up from the states",
        ring.head.offset + 1,
        located.head.offset,
    )
    ring.restart(located.head)
