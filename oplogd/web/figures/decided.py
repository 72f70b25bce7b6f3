"""The figures of transactions and of pointers."""

import logging
from typing import Any

from oplogd.clock import Clock
from oplogd.errors import StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.store.pointers import Pointers
from oplogd.store.transactions import Transactions
from oplogd.web.figures.question import Question

logger = logging.getLogger("oplogd.http")


class DecidedFigures:
    """Reads the figures of the transactions or the pointers. Each topic of a pointer is counted.

    ``name``: the plural for the log. ``age``: the member with the age of the oldest open one, in
    seconds. A fault in a figure is logged and leaves /status complete.
    """

    def __init__(self, part: Transactions | Pointers, name: str, age: str, clock: Clock) -> None:
        self._part = part
        self._age = age
        self._clock = clock
        self._stats = Question[tuple[int, int]](part.stats)
        self._fault = Episode(logger, f"/status lacks the figures of open {name}")

    async def members(self) -> dict[str, Any]:
        """Return the members. ``open`` and the age are None if they are unknown."""
        count, age = await self._open()
        decisions = self._part.decisions
        return {
            "open": count,
            self._age: age,
            "committed": decisions.committed,
            "aborted": decisions.aborted,
            "timed_out": decisions.timed_out,
        }

    async def _open(self) -> tuple[int | None, float | None]:
        try:
            count, oldest_ms = await self._stats.answer()
        except StoreUnavailableError:  # the member ``store`` gives the reason
            return None, None
        except Exception as error:
            if not self._fault.active:
                logger.error("the store failed", exc_info=error)
            self._fault.occurred(detail=repr(error))
            return None, None
        self._fault.end()
        return count, max(0, self._clock.now_ms() - oldest_ms) / 1000 if oldest_ms else 0
