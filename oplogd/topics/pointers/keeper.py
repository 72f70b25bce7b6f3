"""The task that ends pointers whose owners report nothing, and rollbacks that were cut."""

import logging

from oplogd.clock import SYSTEM, Clock
from oplogd.store.pointers import Pointers
from oplogd.topics.keeper import SECONDS, keep

logger = logging.getLogger("oplogd.pointers")


async def keep_pointers(
    pointers: Pointers, seconds: float = SECONDS, clock: Clock = SYSTEM
) -> None:
    """Decide overdue pointers and complete rollbacks every ``seconds`` until cancelled.

    A failure is logged once for each episode, and disturbs nothing else.
    """
    await keep(pointers, "pointers", seconds, logger, clock)
