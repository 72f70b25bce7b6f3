"""The task that deletes the commit logs of idle groups."""

import logging
from collections.abc import Callable

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.store.transactions import Transactions

# A restart needs its time for other work first.
FIRST_SECONDS = 60.0

logger = logging.getLogger("oplogd.transactions")


async def retire_groups(
    transactions: Transactions,
    is_followed: Callable[[int], bool],
    seconds: float,
    clock: Clock = SYSTEM,
) -> None:
    """Delete the logs of idle groups every ``seconds`` until cancelled. A failure is logged."""
    await clock.sleep(min(FIRST_SECONDS, seconds))
    while True:
        try:
            if count := await transactions.retire(is_followed):
                logger.info("deleted the commit logs of %d idle groups of transactions", count)
        except StoreUnavailableError as error:
            logger.warning("cannot delete the logs of idle groups: %s", error)
        except Exception as error:
            logger.error("cannot delete the logs of idle groups", exc_info=error)
        await clock.sleep(seconds)
