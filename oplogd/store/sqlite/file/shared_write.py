"""Steps in a shared transaction of SQLite, with one wait for the disk."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from oplogd.errors import OplogError
from oplogd.store.pointers import PointerDecisions
from oplogd.store.sqlite.file.connection import ConnectionPool, savepoint, transaction
from oplogd.store.transactions import Decisions

# A transaction takes no further steps after this time: other writers wait for it.
SHARED_SECONDS = 0.01

_T = TypeVar("_T")
_D = TypeVar("_D", Decisions, PointerDecisions)
# Counts its decisions last: it may not raise an OplogError after that.
Step = Callable[[sqlite3.Connection, _D], _T]


class _Waiting(NamedTuple):
    step: Step[Any, Any]
    answer: asyncio.Future[Any]


class SharedWrite(Generic[_D]):
    """Does steps in the writer's thread. Steps that come meanwhile share the next transaction.

    ``written``: called in the thread after each transaction. ``new_decisions``: makes the figures
    of the decisions. ``decisions``: of all steps.
    """

    def __init__(
        self, writer: ConnectionPool, written: Callable[[], None], new_decisions: type[_D]
    ) -> None:
        self.decisions: _D = new_decisions()
        self._new_decisions: type[_D] = new_decisions
        self._writer = writer
        self._written = written
        self._waiting: list[_Waiting] = []
        # Ends when nothing waits.
        self._task: asyncio.Task[None] | None = None

    async def run(self, step: Step[_D, _T | OplogError]) -> _T:
        """Do a step. If it raises an OplogError, it has no effect. A returned OplogError is raised.

        Any other error, such as one of SQLite, fails all steps of the transaction. Raises
        StoreUnavailableError.
        """
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(step, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="store-shared-write")
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            steps = [waiting.step for waiting in taken]
            results: Sequence[Any]
            try:
                results = await self._writer.run(partial(self._write, steps))
            except Exception as error:
                results = [error] * len(taken)
            self._waiting[:0] = taken[len(results) :]
            for (_, answer), result in zip(taken, results, strict=False):
                if answer.done():  # its caller was cancelled
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _write(self, steps: Sequence[Step[_D, Any]], db: sqlite3.Connection) -> list[Any]:
        """Return the results of the first steps, as many as there was time for."""
        decided = self._new_decisions()
        if len(steps) == 1:  # a savepoint would keep copies of all changed pages in memory
            results = [_result(db, steps[0], decided, transaction)]
        else:
            results = []
            end = time.monotonic() + SHARED_SECONDS
            with transaction(db):
                for step in steps:
                    results.append(_result(db, step, decided, savepoint))
                    if time.monotonic() > end:
                        break
        self.decisions.committed += decided.committed
        self.decisions.aborted += decided.aborted
        self.decisions.timed_out += decided.timed_out
        self._written()
        return results


def _result(
    db: sqlite3.Connection,
    step: Step[_D, Any],
    decided: _D,
    block: Callable[[sqlite3.Connection], AbstractContextManager[None]],
) -> Any:
    """Do a step in a block. Return its result or its OplogError."""
    try:
        with block(db):
            return step(db, decided)
    except OplogError as error:
        return error
