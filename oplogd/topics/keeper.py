"""The regular work on a part of the store: overdue transactions and pointers, bounds in bytes."""

import logging
from collections.abc import Awaitable, Callable

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.host.logs import Episode

SECONDS = 1.0


async def keep(
    work: Callable[[], Awaitable[int]],
    ask: Callable[[], Awaitable[object]],
    things: str,
    log: str,
    seconds: float = SECONDS,
    clock: Clock = SYSTEM,
) -> None:
    """Call ``work`` every ``seconds`` until cancelled. It returns how many it handled.

    ``work`` may return 0 without a question to the store, because another agent does it. ``ask``
    always asks. ``things``: their plural, for the log of this name. A failure is logged once for
    each episode, and disturbs nothing else.
    """
    logger = logging.getLogger(f"oplogd.{log}")
    trouble = Episode(logger, f"cannot look after {things}")
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
                logger.debug("ended or completed %d %s", count, things)
