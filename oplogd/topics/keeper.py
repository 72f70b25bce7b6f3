"""The regular work on the store: expired messages, overdue transactions and pointers, bounds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.store.topics import Topics

SECONDS = 1.0

# A restart often follows a full disk, so the first sweep does not wait for long.
FIRST_SECONDS = 10.0

logger = logging.getLogger("oplogd.topics")


async def keep(
    work: Callable[[], Awaitable[int]],
    ask: Callable[[], Awaitable[object]],
    subject: str,
    log: str,
    seconds: float = SECONDS,
    clock: Clock = SYSTEM,
) -> None:
    """Call ``work`` every ``seconds`` until cancelled. It returns how many it handled.

    ``work`` may return 0 without a question to the store. ``ask`` always asks. ``subject``: their
    plural, for the log of this name. A failure is logged once for each episode.
    """
    logger = logging.getLogger(f"oplogd.{log}")
    trouble = Episode(logger, f"cannot look after {subject}")
    while True:
        await clock.sleep(seconds)
        try:
            count = await work()
            if trouble.active and not count:
                await ask()  # or the store would seem to work again while it hangs
        except StoreUnavailableError as error:
            trouble.occurred(detail=str(error))
        except Exception as error:
            if not trouble.active:
                logger.error("the store failed", exc_info=error)
            trouble.occurred(detail=repr(error))
        else:
            trouble.end()
            if count:
                logger.debug("ended or completed %d %s", count, subject)


async def sweep_topics(
    topics: Topics, seconds: float, clock: Clock = SYSTEM, asked: asyncio.Event | None = None
) -> None:
    """Remove expired messages every ``seconds``, and when ``asked``. Log each failure once."""
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
