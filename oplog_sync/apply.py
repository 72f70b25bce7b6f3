"""Corrections into a store, in batches, from a Spark task or from anywhere."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from oplog_sync.backend import NEW_LOG, NewLog, make_backend
from oplogd.errors import StoreUnavailableError
from oplogd.store import MAX_CORRECTIONS, Correction, Verdict

PATIENCE_SECONDS = 60.0
"""How long a store that does not answer is asked again: a busy writer, a restarting server."""

_PAUSE_SECONDS = 0.2

_T = TypeVar("_T")


def apply(store: str, corrections: Iterable[Correction], new: NewLog = NEW_LOG) -> Counter[tuple[str, str, Verdict]]:
    """Append the corrections under their guard; how many of each type, event and verdict.

    ``new`` counts where the store is created now. Raises StoreError. May be repeated after a failure: what
    is in already is PRESENT then; without ``expected_n``, it is in twice.
    """
    return asyncio.run(_apply(store, iter(corrections), new))


async def _apply(store: str, corrections: Iterator[Correction], new: NewLog) -> Counter[tuple[str, str, Verdict]]:
    counts: Counter[tuple[str, str, Verdict]] = Counter()
    corrector = make_backend(store).corrector(new)
    await _patiently(corrector.open)
    try:
        while batch := list(islice(corrections, MAX_CORRECTIONS)):
            verdicts = await _patiently(partial(corrector.correct, batch))
            for (operation, _), verdict in zip(batch, verdicts, strict=True):
                counts[operation.key.partition("/")[0], operation.event, verdict] += 1
    finally:
        await corrector.close()
    return counts


async def _patiently(call: Callable[[], Awaitable[_T]]) -> _T:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await call()
        except StoreUnavailableError:
            if time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
