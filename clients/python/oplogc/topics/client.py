"""Topics from an event loop."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Self
from weakref import WeakSet

from oplogc.topics.base import TopicsBase
from oplogc.topics.calls import lists, pointers, topics, transactions
from oplogc.topics.calls.agents import Agents
from oplogc.topics.calls.lists import Lease, Namespace
from oplogc.topics.calls.pointers import Entry
from oplogc.topics.calls.topics import READ_COMMITTED, Isolation, Polled, Properties
from oplogc.topics.calls.transactions import Committed, TransactionStatus
from oplogc.topics.foreign.pointers import AsyncPointers
from oplogc.topics.foreign.publisher import MAX_BUFFERED_BYTES, AsyncForeignPublisher
from oplogc.topics.messages.message import Sendable
from oplogc.topics.messages.names import DEFAULT_NAMESPACE, Topic, topic_name
from oplogc.topics.messages.records import Writable, content, record
from oplogc.topics.messages.snapshot import ForeignTransaction
from oplogc.topics.named.calls import ConsumerCalls
from oplogc.topics.publish.publication import done, publication
from oplogc.topics.publish.publisher import MessagePublisher
from oplogc.topics.publish.queue import PublishCounters
from oplogc.topics.publish.room import BufferRoom
from oplogc.topics.transactions.transaction import AsyncTransaction
from oplogc.wire.errors import TopicAlreadyExists, TopicNotFound

CLOSED = "this object is closed"


class AsyncTopics(ConsumerCalls, TopicsBase):
    """Topics of an agent, from one event loop. Use it with ``async with``.

    A topic is given as ``namespace/topic``, or as ``topic`` in the namespace ``default``.

    Calls are repeated while the agent is unreachable or busy, for ``retry_for`` seconds in total.
    They raise ValueError for a bad name or argument, NotAllowed, TopicNotFound, BadRequestError
    with the agent's sentence, RefusedError for other refusals, UnavailableError after
    ``retry_for``, and ProtocolError if the address is no agent.
    """

    def _begin(self) -> None:
        options = self._options
        self._agents = Agents(options)
        self.room = BufferRoom(options.max_buffered, options.max_buffered_bytes)
        """The space for waiting messages."""
        self.pointers = AsyncPointers(self._agents)
        """Requests under pointers of foreign transactions, and reports of their end."""
        self._transactions: WeakSet[AsyncTransaction] = WeakSet()
        self.publisher = MessagePublisher(self._agents, self.room)
        """Sends the messages, in the event loop."""
        self._closed = False

    async def create(
        self,
        topic: str,
        *,
        ttl: int | None = None,
        pointers: bool = True,
        pointer_timeout: int | None = None,
        max_bytes: int | None = None,
    ) -> Topic:
        """Create a topic and return it.

        ``ttl``: time to live of its messages in seconds. None: the agent's default. ``pointers``:
        whether it takes messages under pointers. ``pointer_timeout``: how long a pointer stays
        open, in seconds. None: the agent's default. ``max_bytes``: above it the oldest messages
        leave. None: no bound. Raises TopicAlreadyExists. If the answer to an attempt was lost, a
        topic with these properties counts as created by this call.
        """
        properties = Properties(ttl, pointers, pointer_timeout, max_bytes)
        call = topics.create(topic_name(topic), properties)
        answer, lost = await self._agents.ask(call)
        error = topics.refusal(call, answer)
        if isinstance(error, TopicAlreadyExists) and lost:
            found = await self.get(topic)
            if properties.are_of(found):
                return found
        if error is not None:
            raise error
        return call.read(answer)

    async def update(
        self,
        topic: str,
        *,
        ttl: int | None = None,
        pointers: bool = True,
        pointer_timeout: int | None = None,
        max_bytes: int | None = None,
    ) -> Topic:
        """Replace the properties of a topic, see ``create``. One not given gets its default."""
        properties = Properties(ttl, pointers, pointer_timeout, max_bytes)
        return await self._agents.fetch(topics.update(topic_name(topic), properties))

    async def get(self, topic: str) -> Topic:
        """Return a topic with its properties."""
        return await self._agents.fetch(topics.get(topic_name(topic)))

    async def list(self, namespace: str = DEFAULT_NAMESPACE) -> tuple[Topic, ...]:
        """Return the topics of a namespace, sorted by name."""
        return await self._agents.fetch(topics.list_topics(namespace))

    async def namespaces(self) -> tuple[Namespace, ...]:
        """Return the namespaces of all topics, sorted by name."""
        return await lists.namespaces(self._agents)

    async def leases(self) -> tuple[Lease, ...]:
        """Return all leases ever held, sorted by name."""
        return await lists.leases(self._agents)

    async def delete(self, topic: str) -> None:
        """Delete a topic with its messages.

        If the answer to an attempt was lost, a missing topic counts as deleted.
        """
        call = topics.delete(topic_name(topic))
        answer, lost = await self._agents.ask(call)
        error = topics.refusal(call, answer)
        if error is not None and not (lost and isinstance(error, TopicNotFound)):
            raise error

    def publish(
        self, topic: str, *messages: Sendable, durable: bool = True
    ) -> "asyncio.Future[None]":
        """Publish messages. The future is done when all of them are durable at the agent.

        The messages of one call are stored together or not at all. Calls for one topic are stored
        in their order. If an answer is lost, the request is sent again, so messages may be stored
        twice. The future raises what other calls raise. Without room in the buffer it raises
        BufferFullError: threads wait for room before, up to ``retry_for`` seconds. Cancel it to
        withdraw messages before they are sent.

        ``durable=False``: the future is done at once. The messages are tried again until the agent
        has them or refuses them, or the topic is gone. Without room they are dropped.

        Raises ValueError for a bad name and after the end, and MessageError for a bad message.
        """
        new = publication(topic, messages, self._options.retry_for if durable else None)
        if self._closed:
            raise ValueError(CLOSED)
        future = asyncio.wrap_future(new.future if durable else done())
        self.publisher.add(new, self.room.take(len(new.messages), new.size))
        return future

    async def poll(
        self,
        topic: str,
        start_from: str | int | datetime | None = None,
        *,
        inclusive: bool = True,
        limit: int | None = None,
        isolation: Isolation = READ_COMMITTED,
        transaction: ForeignTransaction | None = None,
        shard: str | None = None,
    ) -> Polled:
        """Return messages of a topic as it is now, without waiting for others.

        ``start_from``: a message's id, a time, or milliseconds since 1970. None: the oldest. If not
        ``inclusive``, the message of this id or of this millisecond is left out. ``limit``: the
        agent may return fewer. No messages: there are none from there on, or the answer has
        ``held_by``. ``isolation``, ``shard``: see ``TopicConsumer``. ``transaction``: a foreign
        transaction, whose snapshot decides about messages under pointers. It reads committed.
        """
        name = topic_name(topic)
        call = topics.poll(name, start_from, inclusive, limit, isolation, transaction, shard)
        return await self._agents.fetch(call)

    def transaction(
        self,
        group: str | None = None,
        topic: str | None = None,
        timeout: float = 60.0,
        lease: tuple[str, int] | None = None,
        once: tuple[str, int] | None = None,
    ) -> AsyncTransaction:
        """Return a transaction, to be used in a ``with`` or ``async with`` statement.

        ``group``: transactions of a group have one order. None: ``default``. ``topic``: the only
        topic of its records, which is then the commit log. ``timeout``: seconds from its begin
        after which it cannot commit, 900 at most. ``lease``: name and term of a lease. If another
        term has begun at the commit, the transaction is aborted. ``once``: a key and a number. If
        another transaction has committed with them, the begin or the commit raises
        AlreadyCommittedError. Each has a buffer of its own.
        """
        begin = transactions.begin(group, topic, timeout, lease, once)
        self._check_open()
        made = AsyncTransaction(self._agents, begin, timeout)
        self._transactions.add(made)
        return made

    async def commit_whole(
        self,
        records: Iterable[tuple[str, Writable]],
        once: tuple[str, int],
        *,
        group: str | None = None,
        topic: str | None = None,
        timeout: float = 60.0,
        lease: tuple[str, int] | None = None,
    ) -> Committed:
        """Commit a transaction with all of its records, in one request.

        ``records``: topics and messages, or operations, as for ``AsyncTransaction.write``.
        ``once``: a key and a number. If they have committed before, return that commit: so a
        request whose answer was lost is repeated. The others: see ``transaction``. Raises
        RefusedError, too, if a larger number has committed or the lease has another term.
        """
        if not isinstance(once, tuple):
            raise ValueError("once: must be a key and a number")
        begin = transactions.begin(group, topic, timeout, lease, once)
        encoded = [record(lsn, content(*each)) for lsn, each in enumerate(records)]
        return await self._agents.fetch(transactions.commit_whole(begin, encoded))

    def foreign_publisher(
        self, *, max_buffered_bytes: int = MAX_BUFFERED_BYTES
    ) -> AsyncForeignPublisher:
        """Return a publisher for transactions of another transaction manager.

        ``max_buffered_bytes``: bytes of one transaction's messages, as JSON, in the buffer here.
        Above it they are stored at the agent. See ``AsyncForeignPublisher``.
        """
        self._check_open()
        return AsyncForeignPublisher(self.pointers, self._options.batch_size, max_buffered_bytes)

    async def entries(
        self, topic: str, *, after: int | None = None, limit: int | None = None
    ) -> tuple[Entry, ...]:
        """Return entries of a topic as the agent has them, without messages, for operators.

        ``after``: offset of the entry before. None: the newest entries. ``limit``: 1,000 at most.
        None: 100.
        """
        return await self._agents.fetch(pointers.list_entries(topic_name(topic), after, limit))

    async def list_transactions(
        self, *, state: str | None = None, group: str | None = None, limit: int | None = None
    ) -> tuple[TransactionStatus, ...]:
        """Return transactions, the newest first.

        ``state``: open, committing, committed or aborted. None: any. ``limit``: 1,000 at most.
        None: 100.
        """
        return await self._agents.fetch(transactions.list_transactions(state, group, limit))

    async def get_transaction(self, txn: str) -> TransactionStatus:
        """Return a transaction. Raises RefusedError if there is none of this id."""
        return await self._agents.fetch(transactions.get(txn))

    async def abort_transaction(self, txn: str) -> TransactionStatus:
        """Abort a transaction and return it, also if it was aborted before.

        Raises RefusedError if there is none of this id, or if it is committed.
        """
        return await self._agents.fetch(transactions.abort(txn))

    async def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all messages published before are durable, refused or given up.

        Raises FlushError after ``timeout`` seconds (None: never), or at once if the agent refuses
        messages of ``durable=False`` for a cause such as a wrong password. They stay in the buffer.
        """
        await self.publisher.flush(timeout)

    async def aclose(self, timeout: float | None = 30.0) -> None:
        """Refuse further messages and flush. Raises FlushError. Remaining messages are lost.

        Open transactions are aborted. A commit on its way is awaited.
        """
        self._closed = True
        self.room.close()
        try:
            flushed, *_ = await asyncio.gather(
                self.publisher.flush(timeout),
                *(each._close(timeout) for each in list(self._transactions)),
                return_exceptions=True,
            )
            if flushed is not None:
                raise flushed
        finally:
            await self.publisher.end()
            await self._agents.aclose()

    @property
    def counters(self) -> PublishCounters:
        """Return a copy of the counters of ``publish``."""
        return self.publisher.counters

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(CLOSED)
