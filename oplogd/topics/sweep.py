"""The sweep of expired messages."""

import logging

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.store.topics import Topics

# A restart often follows a full disk, so the first sweep does not wait for long.
FIRST_SECONDS = 10.0

logger = logging.getLogger("oplogd.topics")


async def sweep_topics(topics: Topics, seconds: float, clock: Clock = SYSTEM) -> None:
    """Remove expired messages every ``seconds`` until cancelled. A failure is logged."""
    await clock.sleep(min(FIRST_SECONDS, seconds))
    while True:
        try:
            if count := await topics.sweep():
                logger.debug("removed %d messages that had expired", count)
        except StoreUnavailableError as error:
            logger.warning("cannot remove expired messages: %s", error)
        except Exception as error:
            logger.error("cannot remove expired messages", exc_info=error)
        await clock.sleep(seconds)
