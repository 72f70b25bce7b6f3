"""The figures of transactions for /status and /metrics."""

import asyncio
from typing import Any

from oplogd.operation import now_ms
from oplogd.store.transactions import Transactions

STORE_TIMEOUT_SECONDS = 2.0


class TransactionFigures:
    """Reads figures only. A fault in them is no fault of /status: the keeper logs it."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def members(self) -> dict[str, Any]:
        """Return the members. ``open`` and ``oldest_open_seconds``: None if they are not known."""
        decisions = self._transactions.decisions
        return {
            **await self._open(),
            "committed": decisions.committed,
            "aborted": decisions.aborted,
            "timed_out": decisions.timed_out,
        }

    async def _open(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                count, oldest_ms = await self._transactions.stats()
        except Exception:
            return {"open": None, "oldest_open_seconds": None}
        age = max(0, now_ms() - oldest_ms) / 1000 if oldest_ms else 0
        return {"open": count, "oldest_open_seconds": age}
