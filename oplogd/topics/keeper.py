"""The task that ends transactions which nobody ends: overdue ones, and those left half-way."""

import logging
from typing import Protocol

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.store.transactions import Transactions

SECONDS = 1.0

logger = logging.getLogger("oplogd.transactions")


class Kept(Protocol):
    """A part of the store that needs regular work. ``keep`` returns the number of things done.

    ``keep`` may return 0 without a question to the store, because the work is another agent's.
    ``stats`` always asks.
    """

    async def keep(self) -> int: ...

    async def stats(self) -> object: ...


async def keep_transactions(
    transactions: Transactions, seconds: float = SECONDS, clock: Clock = SYSTEM
) -> None:
    """Abort overdue transactions and complete decided ones every ``seconds`` until cancelled.

    A failure is logged once for each episode, and disturbs nothing else.
    """
    await keep(transactions, "transactions", seconds, logger, clock)


async def keep(kept: Kept, things: str, seconds: float, log: logging.Logger, clock: Clock) -> None:
    """Call ``keep`` every ``seconds`` until cancelled. ``things``: their plural for the log."""
    trouble = Episode(log, f"cannot look after {things}")
    while True:
        await clock.sleep(seconds)
        try:
            count = await kept.keep()
            if trouble.active and not count:
                await kept.stats()  # or the store would seem to work again while it hangs
        except StoreUnavailableError as error:
            trouble.occurred(detail=str(error))
        except Exception as error:
            if not trouble.active:
                log.error("the store failed", exc_info=error)
            trouble.occurred(detail=repr(error))
        else:
            trouble.end()
            if count:
                log.debug("ended or completed %d %s", count, things)
