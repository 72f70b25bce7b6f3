"""Topics from threads."""

import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

from oplogc.process.at_exit import close_at_exit, open_ones
from oplogc.process.blocking import blocking, documented_as
from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.base import TopicsBase
from oplogc.topics.client import CLOSED, AsyncTopics
from oplogc.topics.foreign.pointers import AsyncPointers
from oplogc.topics.foreign.publisher import MAX_BUFFERED_BYTES
from oplogc.topics.foreign.threads import ForeignPublisher, Pointers
from oplogc.topics.messages.message import Sendable
from oplogc.topics.publish.publication import done, publication
from oplogc.topics.publish.queue import PublishCounters
from oplogc.topics.transactions.threads import Transaction

_R = TypeVar("_R")


class Topics(TopicsBase):
    """Topics of an agent, from threads. Any thread may call any method. Use it with ``with``.

    The methods are those of ``AsyncTopics``. The child of a fork may use it: it begins without
    buffered messages, and the parent delivers its own. Futures of messages published before the
    fork belong to the parent.
    """

    def _begin(self) -> None:
        self._topics = AsyncTopics._of(self._options)
        self._thread = LoopThread("oplogc-topics")
        # Reentrant: a signal's handler may come while its thread publishes.
        self._lock = threading.RLock()
        self._closing = threading.RLock()
        self._closed = False
        after_fork(self, Topics._begin)

    @contextmanager
    def _twin(self) -> Iterator[tuple[AsyncTopics, LoopThread]]:
        yield self._topics, self._thread

    create = blocking(AsyncTopics.create)
    update = blocking(AsyncTopics.update)
    get = blocking(AsyncTopics.get)
    list = blocking(AsyncTopics.list)
    namespaces = blocking(AsyncTopics.namespaces)
    leases = blocking(AsyncTopics.leases)
    delete = blocking(AsyncTopics.delete)
    poll = blocking(AsyncTopics.poll)
    entries = blocking(AsyncTopics.entries)
    commit_whole = blocking(AsyncTopics.commit_whole)
    list_transactions = blocking(AsyncTopics.list_transactions)
    get_transaction = blocking(AsyncTopics.get_transaction)
    abort_transaction = blocking(AsyncTopics.abort_transaction)
    create_consumer = blocking(AsyncTopics.create_consumer)
    get_consumer = blocking(AsyncTopics.get_consumer)
    list_consumers = blocking(AsyncTopics.list_consumers)
    delete_consumer = blocking(AsyncTopics.delete_consumer)
    seek_consumer = blocking(AsyncTopics.seek_consumer)
    acknowledge = blocking(AsyncTopics.acknowledge)
    flush = blocking(AsyncTopics.flush)

    @documented_as(AsyncTopics.publish)
    def publish(self, topic: str, *messages: Sendable, durable: bool = True) -> "Future[None]":
        topics = self._topics
        retry_for = self._options.retry_for if durable else None
        new = publication(topic, messages, retry_for)
        # A callback would wait for its own thread, which gives the room back.
        wait = 0.0 if retry_for is None or self._thread.is_current else retry_for
        has_room = topics.room.take(len(new.messages), new.size, wait)
        new.future.add_done_callback(self._keep)
        with self._lock:
            self._check_open()
            self._thread.soon(topics.publisher.add, new, has_room)
            open_ones.add(self)
        return new.future if durable else done()

    @documented_as(AsyncTopics.transaction)
    def transaction(
        self,
        group: str | None = None,
        topic: str | None = None,
        timeout: float = 60.0,
        lease: tuple[str, int] | None = None,
        once: tuple[str, int] | None = None,
    ) -> Transaction:
        with self._lock:
            self._check_open()
            made = self._topics.transaction(group, topic, timeout, lease, once)
        return Transaction(self, self._thread, made)

    @property
    def pointers(self) -> Pointers:
        """Requests under pointers of foreign transactions, and reports of their end."""
        return Pointers(self._pointers)

    @documented_as(AsyncTopics.foreign_publisher)
    def foreign_publisher(
        self, *, max_buffered_bytes: int = MAX_BUFFERED_BYTES
    ) -> ForeignPublisher:
        with self._lock:
            self._check_open()
            made = self._topics.foreign_publisher(max_buffered_bytes=max_buffered_bytes)
        return ForeignPublisher(self, self._thread, made)

    @documented_as(AsyncTopics.aclose)
    def close(self, timeout: float | None = 30.0) -> None:
        self._thread.check_may_wait()
        with self._lock:
            self._closed = True
        self._topics.room.close()
        with self._closing:  # a second call waits for the first
            try:
                if self._thread.is_running:
                    self._thread.call(self._topics.aclose(timeout))
            finally:
                self._thread.end()
                open_ones.discard(self)

    def flush_at_exit(self, timeout: float) -> None:
        """Deliver the remaining messages if ``close`` was not called."""
        lost = "messages are lost at the end of the program: close the topics"
        pending = self._topics.room.messages
        warning = f"topics were not closed at the end: {pending:,} messages were buffered"
        close_at_exit(self, timeout, lost, warning if pending else "")

    @property
    def counters(self) -> PublishCounters:
        """Return a copy of the counters of ``publish``."""
        if self._thread.is_running and not self._thread.is_current:
            with suppress(CancelledError, ValueError):  # closed meanwhile
                return self._thread.call(_counters(self._topics))
        return self._topics.counters

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(CLOSED)

    @contextmanager
    def _pointers(self) -> Iterator[tuple[AsyncPointers, LoopThread]]:
        yield self._topics.pointers, self._thread

    def _keep(self, future: "Future[None]") -> None:
        """Keep this object as long as one of its messages waits: they would end with it."""

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)  # missing when __init__ raised
        if thread is not None and thread.is_running and not self._closed:
            thread.end()
            warnings.warn("topics were not closed", ResourceWarning, source=self, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _counters(topics: AsyncTopics) -> PublishCounters:
    return topics.counters
