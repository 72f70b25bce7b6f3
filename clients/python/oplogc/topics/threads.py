"""Topics from threads."""

import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Self, TypeVar

from oplogc.process.at_exit import close_at_exit, open_ones
from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.base import TopicsBase
from oplogc.topics.calls.lists import Lease, Namespace
from oplogc.topics.calls.pointers import Entry
from oplogc.topics.calls.topics import READ_UNCOMMITTED, Isolation, Polled
from oplogc.topics.calls.transactions import TransactionStatus
from oplogc.topics.client import CLOSED, AsyncTopics
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


class Topics(TopicsBase):
    """Topics of an agent, from threads. Any thread may call any method. Use it with ``with``.

    A topic is given as ``namespace/topic``, or as ``topic`` in the namespace ``default``. Calls are
    repeated, and raise, as those of ``AsyncTopics``.

    The child of a fork may use it: it begins without buffered messages, and the parent delivers its
    own. Futures of messages published before the fork belong to the parent.
    """

    def _begin(self) -> None:
        self._topics = AsyncTopics._of(self._options)
        self._thread = LoopThread("oplogc-topics")
        self._lock = threading.Lock()
        self._closed = False
        after_fork(self, Topics._begin)

    def create(
        self,
        topic: str,
        *,
        ttl: int | None = None,
        pointers: bool = True,
        pointer_timeout: int | None = None,
        max_bytes: int | None = None,
    ) -> Topic:
        """Create a topic and return it. Raises TopicAlreadyExists.

        ``ttl``: time to live of its messages in seconds. ``pointers``: whether it takes messages
        under pointers. ``pointer_timeout``: how long a pointer stays open, in seconds.
        ``max_bytes``: above it the oldest messages leave. None: the agent's default, or no bound.
        """
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
        """Replace the properties of a topic and return it. The properties are those of ``create``.

        A property that is not given gets its default.
        """
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
        """Delete a topic with its messages."""
        self._thread.call(self._topics.delete(topic))

    def publish(self, topic: str, *messages: Sendable, durable: bool = True) -> "Future[None]":
        """Publish messages. The future is done when all of them are durable at the agent.

        The messages of one call are stored together or not at all, and in the order of the calls.
        After a lost answer they are sent again, so they may be stored twice. Without room in the
        buffer, wait for room, at most ``retry_for`` seconds.

        ``durable=False``: the future is done at once, and the messages are tried again until the
        agent has them or refuses them. Without room they are dropped.

        Raises ValueError for a bad name or after ``close``, and MessageError for a bad message.
        """
        topics = self._topics
        retry_for = self._options.retry_for if durable else None
        new = publication(topic, messages, retry_for)
        has_room = topics.room.take(len(new.messages), new.size, retry_for or 0.0)
        new.future.add_done_callback(self._keep)
        with self._lock:
            self._check_open()
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
        """Return messages of a topic as it is now, without waiting for others.

        ``start_from``: a message's id, a time, or milliseconds since 1970. None: the oldest. If not
        ``inclusive``, the message of this id or of this millisecond is left out. ``limit``: the
        agent may return fewer. ``isolation``: see ``TopicConsumer``. ``transaction``: a foreign
        transaction, which decides the messages under pointers to be returned.
        """
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

    def transaction(
        self,
        group: str | None = None,
        topic: str | None = None,
        timeout: float = 60.0,
        lease: tuple[str, int] | None = None,
    ) -> Transaction:
        """Return a transaction, to be used with ``with``. See ``Transaction``.

        ``group``: transactions of a group have one order. None: ``default``. ``topic``: the only
        topic of its records, which is then the commit log. ``timeout``: seconds from its begin
        after which it cannot commit, 900 at most. ``lease``: name and term of a lease. If another
        term has begun at the commit, the transaction is aborted.
        """
        with self._lock:
            self._check_open()
            made = self._topics.transaction(group, topic, timeout, lease)
        return Transaction(self, self._thread, made.core)

    @property
    def pointers(self) -> Pointers:
        """Requests under pointers of foreign transactions, and reports of their end."""
        return Pointers(self._run)

    def foreign_publisher(
        self, *, max_buffered_bytes: int = MAX_BUFFERED_BYTES
    ) -> ForeignPublisher:
        """Return a publisher for transactions of another transaction manager.

        ``max_buffered_bytes``: bytes of one transaction's messages, as JSON, in the buffer here.
        Above it they are stored at the agent.
        """
        with self._lock:
            self._check_open()
            made = self._topics.foreign_publisher(max_buffered_bytes=max_buffered_bytes)
        return ForeignPublisher(self, self._thread.call, made.core)

    def entries(
        self, topic: str, *, after: int | None = None, limit: int | None = None
    ) -> tuple[Entry, ...]:
        """Return entries of a topic as the agent has them, without messages, for operators.

        ``after``: offset of the entry before. None: the newest entries. ``limit``: 1,000 at most.
        None: 100.
        """
        return self._thread.call(self._topics.entries(topic, after=after, limit=limit))

    def list_transactions(
        self, *, state: str | None = None, group: str | None = None, limit: int | None = None
    ) -> tuple[TransactionStatus, ...]:
        """Return transactions, the newest first.

        ``state``: open, committing, committed or aborted. None: any. ``limit``: 1,000 at most.
        None: 100.
        """
        return self._thread.call(
            self._topics.list_transactions(state=state, group=group, limit=limit)
        )

    def get_transaction(self, txn: str) -> TransactionStatus:
        """Return a transaction. Raises RefusedError if there is none of this id."""
        return self._thread.call(self._topics.get_transaction(txn))

    def abort_transaction(self, txn: str) -> TransactionStatus:
        """Abort a transaction and return it, also if it was aborted before.

        Raises RefusedError if there is none of this id, or if it is committed.
        """
        return self._thread.call(self._topics.abort_transaction(txn))

    def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all messages published before are durable, refused or given up.

        Raises FlushError after ``timeout`` seconds (None: never), or at once if the agent refuses
        messages of ``durable=False`` for good.
        """
        self._thread.call(self._topics.flush(timeout))

    def close(self, timeout: float | None = 30.0) -> None:
        """Refuse further messages and flush. Raises FlushError. Remaining messages are lost.

        Open transactions are aborted. A commit on its way is awaited.
        """
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
        lost = "messages are lost at the end of the program: close the topics"
        pending = self._topics.room.messages
        warning = f"topics were not closed at the end: {pending:,} messages were buffered"
        close_at_exit(self, timeout, lost, warning if pending else "")

    @property
    def counters(self) -> PublishCounters:
        """Return a copy of the counters of ``publish``."""
        if not self._thread.is_running:
            return self._topics.counters
        return self._thread.call(_counters(self._topics))

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(CLOSED)

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

    def __exit__(self, *_: object) -> None:
        self.close()


async def _counters(topics: AsyncTopics) -> PublishCounters:
    return topics.counters
