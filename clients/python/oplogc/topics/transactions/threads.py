"""A transaction from threads."""

import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.calls.transactions import Committed
from oplogc.topics.messages.records import Writable, content
from oplogc.topics.transactions.core import TransactionCore

_R = TypeVar("_R")


class Transaction:
    """``AsyncTransaction`` for threads; any thread may call any method.

    Made by ``Topics.transaction``. Use it with ``with``. It belongs to the process that made it.
    """

    def __init__(self, owner: object, thread: LoopThread, core: TransactionCore) -> None:
        self._owner = owner  # the thread would end with it
        self._thread = thread
        self._core = core
        self._lock = threading.Lock()
        self._is_lost = False
        after_fork(self, Transaction._lose)

    @property
    def id(self) -> str:
        """The transaction's id, a number. Empty before the block."""
        return self._core.id

    @property
    def expires_at(self) -> datetime:
        """Time after which nothing commits, by the agent's clock."""
        return self._core.expires_at

    def write(self, topic: str, message: Writable) -> "Future[str | None]":
        """Write a record with the next lsn; see ``AsyncTransaction.write``."""
        raw = content(topic, message)
        self._check()
        with self._lock:  # in the order of the calls
            self._core.check()
            self._core.room.take(1, len(raw), None)
            self._core.check()
            future: Future[str | None] = Future()
            self._thread.soon(self._core.enter, raw, future)
        return future

    def commit(self) -> Committed:
        """Commit all records; see ``AsyncTransaction.commit``."""
        self._check()
        with self._lock:
            if not self._thread.is_running and self._core.committed is None:
                self._core.check()
            return self._core.committed or self._end(self._core.commit())

    def abort(self) -> None:
        """Abort the transaction; see ``AsyncTransaction.abort``."""
        self._check()
        if self._core.can_abort():
            self._end(self._core.abort("it was aborted"))

    def __enter__(self) -> Self:
        self._check()
        self._thread.call(self._core.begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._core.is_ending or self._is_lost:
            return
        if error is None:
            self.commit()
        elif self._core.can_abort():
            self._end(self._core.abort(f"{type(error).__name__} in its block"))

    def _end(self, work: Coroutine[Any, Any, _R]) -> _R:
        try:
            return self._thread.call(work)
        except (CancelledError, ValueError):
            self._core.check()  # the client was closed meanwhile: tell what that means
            raise

    def _check(self) -> None:
        if self._is_lost:
            raise ValueError("the transaction belongs to the process that began it")

    def _lose(self) -> None:
        self._is_lost = True
