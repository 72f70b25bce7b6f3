"""The task that ends transactions which nobody ends: overdue ones, and those left half-way."""

import asyncio
import logging

from oplogd.errors import StoreUnavailableError
from oplogd.logs import Episode
from oplogd.store.transactions import Transactions

SECONDS = 1.0

logger = logging.getLogger("oplogd.transactions")


async def keep_transactions(transactions: Transactions, seconds: float = SECONDS) -> None:
    """Abort overdue transactions and complete decided ones every ``seconds`` until cancelled.

    A failure is logged once for each episode, and disturbs nothing else.
    """
    trouble = Episode(logger, "cannot look after transactions")
    while True:
        await asyncio.sleep(seconds)
        try:
            count = await transactions.keep()
        except StoreUnavailableError as error:
            trouble.occurred(detail=str(error))
        except Exception as error:
            if not trouble.active:
                logger.error("the store failed", exc_info=error)
            trouble.occurred(detail=repr(error))
        else:
            trouble.end()
            if count:
                logger.debug("aborted or completed %d transactions", count)
