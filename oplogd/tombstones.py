"""The purge of old tombstones."""

import logging

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.store import Store

LONGEST_PAUSE_SECONDS = 3600.0

logger = logging.getLogger("oplogd.agent")


async def purge_tombstones(store: Store, retention: float, clock: Clock = SYSTEM) -> None:
    """Purge tombstones older than ``retention`` seconds, ten times per retention or hourly."""
    while True:
        try:
            await store.locate()  # a store on another machine tells its time now
            count = await store.purge(store.clock.before_ms(int(retention * 1000)))
            if count:
                logger.info("purged %d objects deleted more than %g s ago", count, retention)
        except StoreUnavailableError as error:
            logger.warning("cannot purge deleted objects: %s", error)
        await clock.sleep(min(LONGEST_PAUSE_SECONDS, max(retention / 10, 1)))
