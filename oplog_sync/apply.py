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
from oplogd.store import MAX_CORRECTIONS, Correction, CorrectionResult

PATIENCE_SECONDS = 60.0
"""How long a store that does not answer is asked again: a busy writer, a restarting server."""

_PAUSE_SECONDS = 0.2

_SHORT_BATCH = 250
"""Batch size on stores whose writers wait for each other. Smaller batches make an agent's own writes wait less."""

_T = TypeVar("_T")
Judged = list[tuple[Correction, CorrectionResult]]


def apply(
    store: str,
    corrections: Iterable[Correction],
    new: NewLog = NEW_LOG,
    max_rate: int | None = None,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[Judged]:
    """Append the corrections under their guard, and yield each batch with its verdicts once it is stored.

    ``new`` counts if the store is created now. ``max_rate``: corrections per second. ``patience``: seconds until a store
    that does not answer is an error. Raises StoreError. May be repeated after a failure: what is in already is PRESENT then; without ``expected_offset``, it is in twice.
    """
    backend = make_backend(store)
    size = _SHORT_BATCH if backend.writers_wait else MAX_CORRECTIONS
    if max_rate is not None:
        size = min(size, max(max_rate // 4, 1))
    waiting = iter(corrections)
    with asyncio.Runner() as runner:
        corrector = backend.corrector(new)
        runner.run(_patiently(corrector.open, patience))
        try:
            while batch := list(islice(waiting, size)):
                started = time.monotonic()
                verdicts = runner.run(_patiently(partial(corrector.correct, batch), patience))
                done = time.monotonic()
                yield list(zip(batch, verdicts, strict=True))
                # As long as the batch took, so that a waiting agent finds the store free every other time it looks.
                next_at = done + (done - started) if backend.writers_wait else done
                if max_rate is not None:
                    next_at = max(next_at, started + len(batch) / max_rate)
                # Not time.sleep: a store in MongoDB has work to do meanwhile.
                runner.run(asyncio.sleep(max(next_at - time.monotonic(), 0.0)))
        finally:
            runner.run(corrector.close())


def count(judged: Iterable[Judged]) -> Counter[tuple[str, str, CorrectionResult]]:
    """How many of each type, event and verdict."""
    return Counter(
        (correction.operation.key.partition("/")[0], correction.operation.event, verdict)
        for batch in judged
        for correction, verdict in batch
    )


async def _patiently(call: Callable[[], Awaitable[_T]], patience: float) -> _T:
    give_up_at = time.monotonic() + patience
    while True:
        try:
            return await call()
        except StoreUnavailableError:
            if time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
