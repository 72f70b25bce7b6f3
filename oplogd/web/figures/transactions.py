"""The figures of transactions and pointers for /status and /metrics."""

import logging
from typing import Any

from oplogd.clock import Clock
from oplogd.errors import StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.store.pointers import PointerDecisions, Pointers
from oplogd.store.transactions import Decisions, Transactions
from oplogd.web.figures.asked import Asked

logger = logging.getLogger("oplogd.http")


class _Open:
    """The open ones of a part of the store. ``things``: their plural for the log.

    A fault in a figure is logged, and is no fault of /status.
    """

    def __init__(self, part: Transactions | Pointers, things: str, clock: Clock) -> None:
        self._stats = Asked[tuple[int, int]](part.stats)
        self._clock = clock
        self._fault = Episode(logger, f"/status lacks the figures of open {things}")

    async def read(self) -> tuple[int | None, float | None]:
        """Return their number, and the age of the oldest in seconds. None: not known."""
        try:
            count, oldest_ms = await self._stats.answer()
        except StoreUnavailableError:  # the store's own figures tell it
            return None, None
        except Exception as error:
            if not self._fault.active:
                logger.error("the store failed", exc_info=error)
            self._fault.occurred(detail=repr(error))
            return None, None
        self._fault.end()
        return count, max(0, self._clock.now_ms() - oldest_ms) / 1000 if oldest_ms else 0


class TransactionFigures:
    """Reads figures only."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._open = _Open(transactions, "transactions", clock)

    async def members(self) -> dict[str, Any]:
        """Return the members. ``open`` and ``oldest_open_seconds``: None if they are not known."""
        count, age = await self._open.read()
        decided = _decided(self._transactions.decisions)
        return {"open": count, "oldest_open_seconds": age, **decided}


class PointerFigures:
    """Reads figures only. Each topic of a pointer is counted."""

    def __init__(self, pointers: Pointers, clock: Clock) -> None:
        self._pointers = pointers
        self._open = _Open(pointers, "pointers", clock)

    async def members(self) -> dict[str, Any]:
        """Return the members. ``open`` and ``oldest_seconds``: None if they are not known."""
        count, age = await self._open.read()
        return {"open": count, "oldest_seconds": age, **_decided(self._pointers.decisions)}


def _decided(decisions: Decisions | PointerDecisions) -> dict[str, int]:
    return {
        "committed": decisions.committed,
        "aborted": decisions.aborted,
        "timed_out": decisions.timed_out,
    }
