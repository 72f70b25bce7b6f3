"""Waiting between two attempts to change a document that others change, too."""

import asyncio
import random
import time

from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo.link.link import Link

# Most time between two attempts.
_JITTER_SECONDS = 0.02


async def pause(link: Link, what: str, began: float) -> None:
    """Wait a moment: another client has changed a document, or a majority does not have it yet.

    At most as long as the caller, who began at a time, has tried already. ``what``: the subject of
    the document. Raises StoreUnavailableError if the caller has tried for too long.
    """
    tried_seconds = time.monotonic() - began
    if tried_seconds > link.timing.majority_seconds:
        raise StoreUnavailableError(
            f"MongoDB at {link.hosts}: {what} changes too often, or no majority of the replica set"
            " has what its primary wrote"
        )
    await asyncio.sleep(random.uniform(0, min(tried_seconds, _JITTER_SECONDS)))
