"""The figures of transactions and pointers for /status and /metrics."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from oplogd.clock import Clock
from oplogd.store.pointers import PointerDecisions, Pointers
from oplogd.store.transactions import Decisions, Transactions

STORE_TIMEOUT_SECONDS = 2.0


class TransactionFigures:
    """Reads figures only. A fault in them is no fault of /status: the keeper logs it."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._clock = clock
        self._transactions = transactions

    async def members(self) -> dict[str, Any]:
        """Return the members. ``open`` and ``oldest_open_seconds``: None if they are not known."""
        count, age = await _open(self._transactions.stats(), self._clock)
        decided = _decided(self._transactions.decisions)
        return {"open": count, "oldest_open_seconds": age, **decided}


class PointerFigures:
    """Reads figures only, as ``TransactionFigures`` does. Each topic of a pointer is counted."""

    def __init__(self, pointers: Pointers, clock: Clock) -> None:
        self._clock = clock
        self._pointers = pointers

    async def members(self) -> dict[str, Any]:
        """Return the members. ``open`` and ``oldest_seconds``: None if they are not known."""
        count, age = await _open(self._pointers.stats(), self._clock)
        return {"open": count, "oldest_seconds": age, **_decided(self._pointers.decisions)}


async def _open(stats: Awaitable[tuple[int, int]], clock: Clock) -> tuple[int | None, float | None]:
    """Return the number of open ones, and the age of the oldest in seconds."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
            count, oldest_ms = await stats
    except Exception:
        return None, None
    return count, max(0, clock.now_ms() - oldest_ms) / 1000 if oldest_ms else 0


def _decided(decisions: Decisions | PointerDecisions) -> dict[str, int]:
    return {
        "committed": decisions.committed,
        "aborted": decisions.aborted,
        "timed_out": decisions.timed_out,
    }
