"""The sweep of expired messages."""

import asyncio
import logging

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.store.topics import Topics

# A restart often follows a full disk, so the first sweep does not wait for long.
FIRST_SECONDS = 10.0

logger = logging.getLogger("oplogd.topics")


async def sweep_topics(
    topics: Topics, seconds: float, clock: Clock = SYSTEM, asked: asyncio.Event | None = None
) -> None:
    """Remove expired messages every ``seconds``, and when ``asked``.

    A failure is logged, but not again while it repeats.
    """
    asked = asked or asyncio.Event()
    await _pause(min(FIRST_SECONDS, seconds), clock, asked)
    trouble = ""
    while True:
        try:
            if count := await topics.sweep():
                logger.debug("removed %d messages that had expired", count)
            trouble = ""
        except StoreUnavailableError as error:
            if trouble != str(error):
                logger.warning("cannot remove expired messages: %s", error)
            trouble = str(error)
        except Exception as error:
            logger.error("cannot remove expired messages", exc_info=error)
        await _pause(seconds, clock, asked)


async def _pause(seconds: float, clock: Clock, asked: asyncio.Event) -> None:
    ends = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(asked.wait())]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
    asked.clear()
