"""Threads of the event loop with a connection to the SQLite file each."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from oplogd.errors import StoreUnavailableError
from oplogd.shared.place import WriterPlace
from oplogd.store.sqlite.file.connection import (
    DAMAGE,
    Identity,
    StoreFile,
    identity_of,
    locked,
    translated,
)
from oplogd.store.sqlite.file.threads import Threads, ThreadsEndedError

_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Own(threading.local):
    """The connection of a thread, and what the thread knew of the file."""

    db: sqlite3.Connection | None = None
    identity: Identity | None = None
    damage_count = 0


class ConnectionPool:
    """Threads with a connection each. A connection that failed is replaced at the next call.

    ``writes``: a call fails if the file has left its path when the call returns, because its work
    would be lost. ``prepare`` is called before the first call, until it succeeds. ``place``: each
    call takes the turn to write, and other workers are told after it; None: there are none.
    """

    def __init__(
        self,
        file: StoreFile,
        name: str,
        threads: int,
        pragmas: str = "",
        *,
        writes: bool = False,
        prepare: Callable[[sqlite3.Connection], None] | None = None,
        place: WriterPlace | None = None,
    ) -> None:
        self._file = file
        self._place = place
        self._pragmas = pragmas
        self._writes = writes
        self._prepare = prepare
        self._threads = Threads(threads, name)
        self._own = _Own()
        self._open: set[sqlite3.Connection] = set()
        # Shared calls that have not begun.
        self._shared: dict[Hashable, asyncio.Task[Any]] = {}
        self._closing = False

    async def run(
        self, call: Callable[[sqlite3.Connection], _T], *, frees_space: bool = False
    ) -> _T:
        """Call in one of the threads. Raises StoreUnavailableError for every SQLite error.

        A call that ``frees_space`` is made again if the disk was full and the reserve was freed.
        """
        run = self._run if self._place is None else self._run_in_turn
        return await self._submit(partial(run, call, frees_space))

    async def _submit(self, work: Callable[[], _T]) -> _T:
        if self._closing:
            raise self._closed()
        try:
            done = self._threads.submit(work)
        except RuntimeError as error:
            raise StoreUnavailableError(f"store {self._file.path}: {error}") from None
        try:
            return await done
        except ThreadsEndedError:
            raise self._closed() from None

    async def run_shared(self, key: Hashable, call: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do ``run`` once for all calls of a key that wait for a thread.

        None of them sees less than ``run`` would show. ``key`` must name all that ``call`` reads.
        The pool must not be one that writes.
        """
        assert self._place is None
        task: asyncio.Task[_T] | None = self._shared.get(key)
        if task is None:

            def work() -> _T:
                # Later calls need a later look: the file may be replaced from here on.
                self._shared.pop(key, None)
                return self._run(call, frees_space=False)

            task = asyncio.create_task(self._submit(work), name="shared look-up")
            self._shared[key] = task
            task.add_done_callback(partial(self._forget_shared, key))
        return await asyncio.shield(task)

    def _forget_shared(self, key: Hashable, task: "asyncio.Task[Any]") -> None:
        if self._shared.get(key) is task:  # it failed before a thread took it
            del self._shared[key]
        if not task.cancelled():
            task.exception()  # all who waited may have gone

    def _closed(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"store {self._file.path}: it is closed")

    def method(
        self, call: Callable[Concatenate[sqlite3.Connection, _P], _T]
    ) -> Callable[_P, Coroutine[Any, Any, _T]]:
        """Return a method that does ``run`` with a call and its other arguments."""

        async def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            return await self.run(lambda db: call(db, *args, **kwargs))

        return run

    @property
    def is_wanted(self) -> bool:
        """Return whether a call waits for a thread."""
        return self._threads.has_waiting

    @property
    def is_prepared(self) -> bool:
        return self._prepare is None

    async def close(self, *, interrupt: bool = False) -> None:
        """Drop waiting calls and wait for running ones. ``interrupt``: those raise."""
        self._closing = True
        if interrupt:
            for db in tuple(self._open):
                with contextlib.suppress(sqlite3.ProgrammingError):  # just closed after a failure
                    db.interrupt()
        await self._threads.end()
        while self._open:
            self._open.pop().close()

    def _run_in_turn(self, call: Callable[[sqlite3.Connection], _T], frees_space: bool) -> _T:
        assert self._place is not None
        try:
            with self._place.turn:
                return self._run(call, frees_space)
        except TimeoutError:
            raise locked(self._file.path) from None
        finally:
            self._place.ring()

    def _run(self, call: Callable[[sqlite3.Connection], _T], frees_space: bool) -> _T:
        db = self._own.db
        try:
            if db is not None and (
                self._own.damage_count != self._file.damage_count
                or identity_of(self._file.path) != self._own.identity
            ):
                self._forget(db)  # writes to a file that was moved away are lost
                db = None
            if db is None:
                self._own.damage_count = self._file.damage_count
                db, self._own.identity = self._file.connect(self._pragmas)
                self._own.db = db
                self._open.add(db)
            if self._prepare is not None:
                self._prepare(db)
                self._prepare = None
            result = call(db)
            if self._writes:
                if identity_of(self._file.path) != self._own.identity:
                    self._forget(db)
                    raise StoreUnavailableError(
                        f"store {self._file.path}: the file was moved away while it was written to"
                    )
                self._file.wal.look()
            return result
        except sqlite3.Error as error:
            if db is not None:
                self._forget(db)
            if getattr(error, "sqlite_errorname", "").startswith(DAMAGE):
                self._file.damage_count += 1
            is_full = self._file.disk.is_refusal(error)
            if is_full and frees_space and self._file.disk.free_reserve():
                return self._run(call, frees_space=False)
            raise translated(error, self._file.path, is_full=is_full) from error

    def _forget(self, db: sqlite3.Connection) -> None:
        self._open.discard(db)
        self._own.db = None
        db.close()


class Pools(NamedTuple):
    """The threads shared by the parts of a store. No look-up waits for a page of entries."""

    writer: ConnectionPool
    readers: ConnectionPool
    lookups: ConnectionPool
