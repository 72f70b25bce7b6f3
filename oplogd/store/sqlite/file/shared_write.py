"""Steps of several callers in one transaction of SQLite, with one wait for the disk."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from oplogd.clock.ages import Present
from oplogd.clock.guard import GuardedClock
from oplogd.errors import OplogError
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.connection import savepoint, transaction
from oplogd.store.sqlite.file.pool import ConnectionPool, Pools
from oplogd.store.transactions import Decisions

# A transaction takes no further steps after this time, and after the short one if another call of
# the writer waits: small publishes keep a fair part of the time beside transactions.
SHARED_SECONDS = 0.01
SHORT_SECONDS = 0.003

# Steps done at once have at most this size together. It takes up to 3 ms. Larger groups are no
# quicker: the event loop takes the next requests meanwhile.
MAX_TOGETHER = 48

_T = TypeVar("_T")


class SharedStep(NamedTuple):
    """One step: its connection, its present, and the count of its decisions.

    A step counts its decisions last. Afterwards it may not raise an OplogError.
    """

    db: sqlite3.Connection
    present: Present
    decisions: Decisions


class Together(NamedTuple):
    """A way to do a step at once with others of the same ``work``.

    ``work`` gets their items, and returns their results. It does all of them or none.
    """

    work: Callable[[SharedStep, Sequence[Any]], Sequence[Any]]
    item: Any
    size: int


class _Waiting(NamedTuple):
    work: Callable[[SharedStep], Any]
    answer: asyncio.Future[Any]
    together: Together | None


class SharedWriter:
    """Does steps in the writer's thread. Waiting steps share the next transaction.

    ``wake``: called in the writer's thread after each transaction, with new entries in any log.
    ``decisions``: of all steps.
    """

    def __init__(self, pools: Pools, wake: Callable[[], None], clock: GuardedClock) -> None:
        self.decisions = Decisions()
        self._clock = clock
        self._wake = wake
        self._writer, self._readers, self._lookups = pools
        self._waiting: list[_Waiting] = []
        # Ends when nothing waits.
        self._task: asyncio.Task[None] | None = None

    async def _run(
        self,
        work: Callable[[SharedStep], _T | OplogError],
        together: Together | None = None,
    ) -> _T:
        """Do a step. A raised OplogError undoes it. A returned one is raised, and the step stays.

        Any other error, such as one of SQLite, fails all steps of the transaction. Raises
        StoreUnavailableError. ``together``: tried first, with the waiting steps that it can do. If
        it raises an OplogError, each of them is done by its own ``work``.
        """
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(work, answer, together))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="store-shared-write")
        return await answer

    async def _due(
        self, work: str, date_again: str, limit: int, **more: int
    ) -> dict[str, int | str] | None:
        """Return the parameters of a keeper's statements, or None if ``work`` finds nothing to do.

        ``date_again``: lets begin now what began before the clock was set back.
        """
        present = self._clock.present()
        given = age_statements.ends(present) | {"now": present.ms, "ahead": present.known_to}
        given |= {"limit": limit, **more}
        if not await self._lookups.run(lambda db: db.execute(work, given).fetchone()[0]):
            return None
        await self._writer.run(lambda db: db.execute(date_again, given))
        return given

    async def _work(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            results: Sequence[Any]
            try:
                results = await self._writer.run(partial(self._write, taken))
            except Exception as error:
                results = [error] * len(taken)
            self._waiting[:0] = taken[len(results) :]
            for (_, answer, _), result in zip(taken, results, strict=False):
                if answer.done():  # its caller was cancelled
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _write(self, waiting: Sequence[_Waiting], db: sqlite3.Connection) -> list[Any]:
        """Return the results of the first steps, as many as there was time for."""
        decided = Decisions()
        limit = _TimeLimit(self._writer)
        results: list[Any] = []
        if len(waiting) == 1:  # a savepoint would keep copies of all changed pages in memory
            results += self._results(db, waiting, decided, transaction, limit)
        else:
            with transaction(db):
                while len(results) < len(waiting):
                    steps = _next(waiting, len(results))
                    results += self._results(db, steps, decided, savepoint, limit)
                    if limit.is_over:
                        break
        self.decisions.include(decided)
        self._wake()
        return results

    def _results(
        self,
        db: sqlite3.Connection,
        waiting: Sequence[_Waiting],
        decided: Decisions,
        block: Callable[[sqlite3.Connection], AbstractContextManager[None]],
        limit: "_TimeLimit",
    ) -> Iterator[Any]:
        """Do steps of one kind. Return the results of the first ones: see ``_write``."""
        joined = [each.together for each in waiting if each.together is not None]
        if joined:
            try:
                with block(db):
                    step = SharedStep(db, self._clock.present(), decided)
                    results = joined[0].work(step, [each.item for each in joined])
                yield from results
                return
            except OplogError:
                pass  # it is told which of them is refused, one by one
        for each in waiting:
            yield self._result(db, each, decided, block)
            if limit.is_over:
                return

    def _result(
        self,
        db: sqlite3.Connection,
        waiting: _Waiting,
        decided: Decisions,
        block: Callable[[sqlite3.Connection], AbstractContextManager[None]],
    ) -> Any:
        """Do a step in a block. Return its result or its OplogError."""
        try:
            with block(db):
                return waiting.work(SharedStep(db, self._clock.present(), decided))
        except OplogError as error:
            return error


class _TimeLimit:
    """How long one transaction takes further steps."""

    def __init__(self, writer: ConnectionPool) -> None:
        self._writer = writer
        self._begun = time.monotonic()

    @property
    def is_over(self) -> bool:
        took = time.monotonic() - self._begun
        return took > SHARED_SECONDS or (took > SHORT_SECONDS and self._writer.is_wanted)


def _next(waiting: Sequence[_Waiting], start: int) -> Sequence[_Waiting]:
    """Return the step at an index, with the ones behind it that are done at once with it."""
    end = start + 1
    if (first := waiting[start].together) is not None:
        size = first.size
        for _, _, each in waiting[end:]:
            if each is None or each.work is not first.work or size + each.size > MAX_TOGETHER:
                break
            size += each.size
            end += 1
    return waiting[start:end]
