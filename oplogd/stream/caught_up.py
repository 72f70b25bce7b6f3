"""The end of a catch-up: a stop waits for it."""

import asyncio

from oplogd.errors import StoreUnavailableError
from oplogd.store import Store
from oplogd.stream.feeds import Feeds
from oplogd.stream.hub import Hub
from oplogd.stream.ring.ring import Ring

_MOST_SECONDS = 2.0


async def caught_up(store: Store, ring: Ring, feeds: Feeds, hub: Hub) -> None:
    """Wait briefly until the rings and all live consumers have reached the head of the log."""
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            head = (await store.locate()).head.offset
            while (
                ring.head.offset < head
                or feeds.is_behind
                or any(consumer.phase.is_behind() for consumer in hub.consumers)
            ):
                await asyncio.sleep(0.01)
    except (TimeoutError, StoreUnavailableError):
        return
