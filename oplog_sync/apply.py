"""Append corrections to a store in batches. Runs in a Spark task or in any other process."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from oplog_sync.backend import NEW_LOG, NewLog, make_backend
from oplogd.errors import StoreUnavailableError
from oplogd.store import MAX_CORRECTIONS, Correction, CorrectionResult

# How long to retry if the store does not answer: its writer is busy, its server restarts.
PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2

# Batch size for stores with one writer at a time: the agent's own writes wait for a batch.
SHORT_BATCH = 250
_BATCH_BYTES = 2 << 20

_T = TypeVar("_T")
Judged = list[tuple[Correction, CorrectionResult]]


def apply(
    store: str,
    corrections: Iterable[Correction],
    new: NewLog = NEW_LOG,
    max_rate: int | None = None,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[Judged]:
    """Append the corrections under their guard. Yield each stored batch with its verdicts.

    ``new`` applies if the store is created now. ``max_rate``: corrections per second. ``patience``:
    seconds to retry if the store does not answer. Raises StoreError. The call may be repeated after
    a failure: corrections already in the log get the verdict PRESENT. A correction without
    ``expected_offset`` is appended again.
    """
    backend = make_backend(store)
    size = SHORT_BATCH if backend.writers_wait else MAX_CORRECTIONS
    if max_rate is not None:
        size = min(size, max(max_rate // 4, 1))
    with asyncio.Runner() as runner:
        corrector = runner.run(_patiently(partial(backend.corrector, new), patience))
        try:
            for batch in _batches(corrections, size):
                started = time.monotonic()
                verdicts = runner.run(_patiently(partial(corrector.correct, batch), patience))
                done = time.monotonic()
                yield list(zip(batch, verdicts, strict=True))
                # Pause for as long as the batch took: a waiting agent finds the store free every
                # second time.
                next_at = done + (done - started) if backend.writers_wait else done
                if max_rate is not None:
                    next_at = max(next_at, started + len(batch) / max_rate)
                # Not time.sleep: a store in MongoDB uses the event loop meanwhile.
                runner.run(asyncio.sleep(max(next_at - time.monotonic(), 0.0)))
        finally:
            runner.run(corrector.close())


def count(judged: Iterable[Judged]) -> Counter[tuple[str, str, CorrectionResult]]:
    """Count the corrections by type, event and verdict."""
    return Counter(
        (correction.operation.key.partition("/")[0], correction.operation.event, verdict)
        for batch in judged
        for correction, verdict in batch
    )


def _batches(corrections: Iterable[Correction], size: int) -> Iterator[list[Correction]]:
    """Yield batches of ``size``, less if they have large data: an agent waits for each."""
    batch: list[Correction] = []
    taken = 0
    for correction in corrections:
        batch.append(correction)
        taken += len(correction.operation.data)
        if len(batch) == size or taken >= _BATCH_BYTES:
            yield batch
            batch, taken = [], 0
    if batch:
        yield batch


async def _patiently(call: Callable[[], Awaitable[_T]], patience: float) -> _T:
    give_up_at = time.monotonic() + patience
    while True:
        try:
            return await call()
        except StoreUnavailableError:
            if time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
