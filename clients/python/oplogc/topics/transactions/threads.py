"""A transaction from threads."""

import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Self, TypeVar

from oplogc.process.blocking import documented_as
from oplogc.process.forks import OfOneProcess
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.calls.transactions import Committed
from oplogc.topics.messages.records import Writable, content
from oplogc.topics.transactions.transaction import AsyncTransaction

_R = TypeVar("_R")


class Transaction(OfOneProcess):
    """Records for committed readers: visible together, or never.

    Any thread may call any method. Made by ``Topics.transaction``. Use it with ``with``. See
    ``AsyncTransaction``. Only the process of its begin may use it.
    """

    def __init__(self, owner: object, thread: LoopThread, core: AsyncTransaction) -> None:
        super().__init__("the transaction belongs to the process that began it")
        self._owner = owner  # the thread would end with it
        self._thread = thread
        self._core = core
        # Reentrant: a signal's handler may come while its thread writes.
        self._lock = threading.RLock()

    @property
    def id(self) -> str:
        """The transaction's id, a number. Empty before the block."""
        return self._core.id

    @property
    def expires_at(self) -> datetime:
        """Time after which nothing commits, by the agent's clock."""
        return self._core.expires_at

    @documented_as(AsyncTransaction.write)
    def write(self, topic: str, message: Writable) -> "Future[str | None]":
        raw = content(topic, message)
        self._check_process()
        # A callback cannot wait: its thread gives the room back, and ends commits with the lock.
        is_callback = self._thread.is_current
        with nullcontext() if is_callback else self._lock:  # in the order of the calls
            self._core._check()
            if not self._core._room.take(1, len(raw), 0.0 if is_callback else None):
                self._thread.check_may_wait()
            self._core._check()
            future: Future[str | None] = Future()
            self._thread.soon(self._core._enter, raw, future)
        return future

    @documented_as(AsyncTransaction.commit)
    def commit(self) -> Committed:
        self._check_process()
        self._thread.check_may_wait()
        with self._lock:
            if not self._thread.is_running and self._core._committed is None:
                self._core._check()
            return self._core._committed or self._end(self._core.commit())

    @documented_as(AsyncTransaction.abort)
    def abort(self) -> None:
        self._check_process()
        if self._core._can_abort():
            self._end(self._core.abort())

    def __enter__(self) -> Self:
        self._check_process()
        self._thread.call(self._core.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._core._is_ending or self._is_lost:
            return
        if error is None:
            self.commit()
        elif self._core._can_abort():
            self._end(self._core._abort_because(f"{type(error).__name__} in its block"))

    def _end(self, work: Coroutine[Any, Any, _R]) -> _R:
        try:
            return self._thread.call(work)
        except (CancelledError, ValueError):
            self._core._check()  # the client was closed meanwhile: the error of the transaction
            raise
