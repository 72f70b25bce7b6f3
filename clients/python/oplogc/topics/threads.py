"""Topics from threads."""

import threading
import warnings
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from oplogc.process.at_exit import close_at_exit, open_ones
from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.calls.lists import Lease, Namespace
from oplogc.topics.calls.pointers import Entry
from oplogc.topics.calls.topics import READ_UNCOMMITTED, Isolation, Polled
from oplogc.topics.calls.transactions import TransactionStatus
from oplogc.topics.client import CLOSED, AsyncTopics
from oplogc.topics.consumer import TopicConsumer
from oplogc.topics.foreign.core import MAX_BUFFERED_BYTES
from oplogc.topics.foreign.pointers import AsyncPointers
from oplogc.topics.foreign.threads import ForeignPublisher, Pointers
from oplogc.topics.messages.message import Sendable
from oplogc.topics.messages.names import DEFAULT_NAMESPACE, Topic
from oplogc.topics.messages.snapshot import ForeignTransaction
from oplogc.topics.publish.publication import done, publication
from oplogc.topics.publish.queue import PublishCounters
from oplogc.topics.transactions.threads import Transaction

_R = TypeVar("_R")


class Topics:
    """``AsyncTopics`` for threads, with the same arguments; any thread may call any method.

    Use it with ``with``. The child of a fork may use it: it begins without buffered messages, and
    the parent delivers its own. Futures of messages published before the fork belong to the parent.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "http://localhost:8042",
        *,
        password: str | None = None,
        ingest_password: str | None = None,
        proxy: str | None = None,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        backoff: tuple[float, float] = (1.0, 30.0),
        batch_size: int = 1000,
        max_buffered: int = 100_000,
        max_buffered_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        def make() -> AsyncTopics:
            return AsyncTopics(
                url,
                password=password,
                ingest_password=ingest_password,
                proxy=proxy,
                timeout=timeout,
                retry_for=retry_for,
                backoff=backoff,
                batch_size=batch_size,
                max_buffered=max_buffered,
                max_buffered_bytes=max_buffered_bytes,
            )

        self._make = make
        self._begin()
        after_fork(self, Topics._begin)

    def _begin(self) -> None:
        self._topics = self._make()
        self._thread = LoopThread("oplogc-topics")
        self._lock = threading.Lock()
        self._closed = False

    def create(
        self,
        topic: str,
        *,
        ttl: int | None = None,
        pointers: bool = True,
        pointer_timeout: int | None = None,
        max_bytes: int | None = None,
    ) -> Topic:
        """Create a topic and return it; see ``AsyncTopics.create``."""
        return self._thread.call(
            self._topics.create(
                topic,
                ttl=ttl,
                pointers=pointers,
                pointer_timeout=pointer_timeout,
                max_bytes=max_bytes,
            )
        )

    def update(
        self,
        topic: str,
        *,
        ttl: int | None = None,
        pointers: bool = True,
        pointer_timeout: int | None = None,
        max_bytes: int | None = None,
    ) -> Topic:
        """Replace the properties of a topic and return it; see ``AsyncTopics.update``."""
        return self._thread.call(
            self._topics.update(
                topic,
                ttl=ttl,
                pointers=pointers,
                pointer_timeout=pointer_timeout,
                max_bytes=max_bytes,
            )
        )

    def get(self, topic: str) -> Topic:
        """Return a topic with its properties."""
        return self._thread.call(self._topics.get(topic))

    def list(self, namespace: str = DEFAULT_NAMESPACE) -> tuple[Topic, ...]:
        """Return the topics of a namespace, sorted by name."""
        return self._thread.call(self._topics.list(namespace))

    def namespaces(self) -> tuple[Namespace, ...]:
        """Return the namespaces that have topics, sorted by name."""
        return self._thread.call(self._topics.namespaces())

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases that were ever held, sorted by name."""
        return self._thread.call(self._topics.leases())

    def delete(self, topic: str) -> None:
        """Delete a topic with its messages; see ``AsyncTopics.delete``."""
        self._thread.call(self._topics.delete(topic))

    def publish(self, topic: str, *messages: Sendable, durable: bool = True) -> "Future[None]":
        """Publish messages; see ``AsyncTopics.publish``.

        If there is no room in the buffer, it waits for room, at most ``retry_for`` seconds; with
        ``durable=False`` it does not wait.
        """
        topics = self._topics
        new = publication(topic, messages, topics.retry_for if durable else None)
        has_room = topics.room.take(
            len(new.messages), new.size, topics.retry_for if durable else 0.0
        )
        new.future.add_done_callback(self._keep)
        with self._lock:
            if self._closed:
                raise ValueError(CLOSED)
            self._thread.soon(topics.enter, new, has_room)
            open_ones.add(self)
        return new.future if durable else done()

    def poll(
        self,
        topic: str,
        start_from: str | int | datetime | None = None,
        *,
        inclusive: bool = True,
        limit: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
        transaction: ForeignTransaction | None = None,
    ) -> Polled:
        """Return messages that are in the topic now; see ``AsyncTopics.poll``."""
        return self._thread.call(
            self._topics.poll(
                topic,
                start_from,
                inclusive=inclusive,
                limit=limit,
                isolation=isolation,
                transaction=transaction,
            )
        )

    def stream(
        self,
        topic: str,
        *,
        start: str | datetime | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
        name: str | None = None,
        state_file: str | Path | None = None,
        heartbeat_timeout: float = 40.0,
        save_interval: float = 1.0,
        max_unacked: int = 10_000,
    ) -> TopicConsumer:
        """Follow a topic; see ``TopicConsumer``."""
        return self._topics.stream(
            topic,
            start=start,
            isolation=isolation,
            name=name,
            state_file=state_file,
            heartbeat_timeout=heartbeat_timeout,
            save_interval=save_interval,
            max_unacked=max_unacked,
        )

    def transaction(
        self,
        group: str | None = None,
        topic: str | None = None,
        timeout: float = 60.0,
        lease: tuple[str, int] | None = None,
    ) -> Transaction:
        """Return a transaction, to be used with ``with``; see ``AsyncTopics.transaction``."""
        with self._lock:
            if self._closed:
                raise ValueError(CLOSED)
            made = self._topics.transaction(group, topic, timeout, lease)
        return Transaction(self, self._thread, made.core)

    @property
    def pointers(self) -> Pointers:
        """Requests under pointers of foreign transactions, and reports of their end."""
        return Pointers(self._run)

    def foreign_publisher(
        self, *, max_buffered_bytes: int = MAX_BUFFERED_BYTES
    ) -> ForeignPublisher:
        """Return a publisher for foreign transactions; see ``AsyncTopics.foreign_publisher``."""
        with self._lock:
            if self._closed:
                raise ValueError(CLOSED)
            made = self._topics.foreign_publisher(max_buffered_bytes=max_buffered_bytes)
        return ForeignPublisher(self, self._thread.call, made.core)

    def entries(
        self, topic: str, *, after: int | None = None, limit: int | None = None
    ) -> tuple[Entry, ...]:
        """Return entries of a topic without messages; see ``AsyncTopics.entries``."""
        return self._thread.call(self._topics.entries(topic, after=after, limit=limit))

    def list_transactions(
        self,
        *,
        state: str | None = None,
        group: str | None = None,
        limit: int | None = None,
    ) -> tuple[TransactionStatus, ...]:
        """Return transactions, the newest first; see ``AsyncTopics.list_transactions``."""
        return self._thread.call(
            self._topics.list_transactions(state=state, group=group, limit=limit)
        )

    def get_transaction(self, txn: str) -> TransactionStatus:
        """Return a transaction; see ``AsyncTopics.get_transaction``."""
        return self._thread.call(self._topics.get_transaction(txn))

    def abort_transaction(self, txn: str) -> TransactionStatus:
        """Abort a transaction; see ``AsyncTopics.abort_transaction``."""
        return self._thread.call(self._topics.abort_transaction(txn))

    def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all messages published before are settled; see ``AsyncTopics.flush``."""
        self._thread.call(self._topics.flush(timeout))

    def close(self, timeout: float | None = 30.0) -> None:
        """Refuse further messages and flush; see ``AsyncTopics.aclose``. Raises FlushError."""
        with self._lock:
            self._closed = True
        self._topics.room.close()
        try:
            if self._thread.is_running:
                self._thread.call(self._topics.aclose(timeout))
        finally:
            self._thread.end()
            open_ones.discard(self)

    def flush_at_exit(self, timeout: float) -> None:
        """Deliver the remaining messages if ``close`` was not called."""
        pending = self._topics.room.messages
        close_at_exit(
            self,
            timeout,
            "messages are lost at the end of the program: close the topics",
            f"topics were not closed at the end: {pending:,} messages were buffered"
            if pending
            else "",
        )

    @property
    def counters(self) -> PublishCounters:
        """Return a copy of the counters of ``publish``."""
        if not self._thread.is_running:
            return self._topics.counters
        return self._thread.call(_counters(self._topics))

    def _run(self, call: Callable[[AsyncPointers], Coroutine[Any, Any, _R]]) -> _R:
        return self._thread.call(call(self._topics.pointers))

    def _keep(self, future: "Future[None]") -> None:
        """Keep this object as long as one of its messages waits: they would end with it."""

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)  # missing when __init__ raised
        if thread is not None and thread.is_running and not self._closed:
            thread.end()
            warnings.warn("topics were not closed", ResourceWarning, source=self, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _counters(topics: AsyncTopics) -> PublishCounters:
    return topics.counters
