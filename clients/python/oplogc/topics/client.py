"""Topics from an event loop."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from weakref import WeakSet

from oplogc.http.address import check_proxy
from oplogc.http.answers import AGENT, Answer
from oplogc.http.backoff import Backoff
from oplogc.http.client import Http
from oplogc.topics.calls import lists
from oplogc.topics.calls import pointers as foreign
from oplogc.topics.calls import topics as calls
from oplogc.topics.calls import transactions as transactions
from oplogc.topics.calls.agents import Agents
from oplogc.topics.calls.lists import Lease, Namespace
from oplogc.topics.calls.pointers import Entry
from oplogc.topics.calls.topics import READ_UNCOMMITTED, Call, Isolation, Polled
from oplogc.topics.calls.transactions import TransactionStatus
from oplogc.topics.consumer import TopicConsumer
from oplogc.topics.foreign.core import MAX_BUFFERED_BYTES, ForeignCore
from oplogc.topics.foreign.pointers import AsyncPointers
from oplogc.topics.foreign.publisher import AsyncForeignPublisher
from oplogc.topics.messages.message import Sendable
from oplogc.topics.messages.names import DEFAULT_NAMESPACE, Topic, topic_name
from oplogc.topics.messages.snapshot import ForeignTransaction
from oplogc.topics.publish.publication import Publication, done, fail, publication
from oplogc.topics.publish.publisher import Publisher
from oplogc.topics.publish.queue import PublishCounters
from oplogc.topics.publish.room import Room
from oplogc.topics.transactions.core import TransactionCore
from oplogc.topics.transactions.transaction import AsyncTransaction
from oplogc.wire.errors import BufferFullError, TopicAlreadyExists, TopicNotFound

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A poll has some 1 MB, up to six times as much in JSON; a long list of topics may have more."""

CLOSED = "this object is closed"


class AsyncTopics:
    """Topics of an agent, from one event loop. Use it with ``async with``.

    A topic is given as ``namespace/topic``, or as ``topic`` in the namespace ``default``.

    Calls are repeated while the agent is unreachable or busy, for ``retry_for`` seconds in total.

    - ``url``: an agent, or a list of agents on the same store. A request goes to the next one when
      an agent is unreachable or busy.
    - ``password``: for reading; overrides user and password of the URL. ``ingest_password``: for
      publishing, creating, changing, deleting and transactions; None: the same. ``proxy``: URL of
      an HTTP proxy; None: the environment's.
    - ``timeout``: seconds that one attempt may take in total. ``backoff``: seconds between
      attempts, the first and the longest; they double, with jitter. A ``Retry-After`` of the agent
      is heeded.
    - ``batch_size``: messages in a request at most, unless one call has more.
    - ``max_buffered``, ``max_buffered_bytes``: limits of the messages that wait to be delivered.

    Raises ValueError for a bad argument. Calls raise ValueError for a bad name or argument,
    NotAllowed, TopicNotFound, BadRequestError with the agent's sentence, RefusedError for other
    refusals, UnavailableError after ``retry_for``, and ProtocolError if the address is no agent.
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
        check_proxy(proxy)
        if not (timeout > 0 and retry_for > 0):
            raise ValueError("timeout and retry_for: give seconds, more than 0")
        if batch_size < 1:
            raise ValueError("batch_size must be at least 1")
        self._password = password
        self._proxy = proxy
        self._timeout = timeout
        self.retry_for = retry_for
        self._backoff = backoff
        self._http = Http(proxy, timeout, MAX_ANSWER_BYTES, AGENT)
        self._agents = Agents(url, password, ingest_password, self._http, backoff, retry_for)
        self.room = Room(max_buffered, max_buffered_bytes)
        """The space for messages that wait to be delivered."""
        self._limits = (max_buffered, max_buffered_bytes)
        self._batch_size = batch_size
        self.pointers = AsyncPointers(self._agents)
        """Requests under pointers of foreign transactions, and reports of their end."""
        self._transactions: WeakSet[TransactionCore] = WeakSet()
        self._publisher = Publisher(self._agents, batch_size, lambda: Backoff(*backoff), self.room)
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

        ``ttl``: time to live of its messages in seconds; None: the agent's default. ``pointers``:
        whether it takes messages under pointers. ``pointer_timeout``: how long a pointer stays
        open, in seconds; None: the agent's default. ``max_bytes``: above it the oldest messages
        leave; None: no bound. Raises TopicAlreadyExists. If the answer to an attempt was lost, a
        topic with these properties counts as created by this call.
        """
        name = topic_name(topic)
        call = calls.create(name, ttl, pointers, pointer_timeout, max_bytes)
        answer, lost = await self._agents.ask(call)
        error = calls.refusal(call, answer)
        if isinstance(error, TopicAlreadyExists) and lost:
            found = await self.get(topic)
            wanted = (pointers, pointer_timeout, max_bytes)
            same = (found.pointers, found.pointer_timeout, found.max_bytes) == wanted
            if same and (ttl is None or found.ttl == ttl):
                return found
        if error is not None:
            raise error
        return calls.topic(name, answer)

    async def update(
        self,
        topic: str,
        *,
        ttl: int | None = None,
        pointers: bool = True,
        pointer_timeout: int | None = None,
        max_bytes: int | None = None,
    ) -> Topic:
        """Replace the properties of a topic and return it; see ``create``.

        A property that is not given gets its default.
        """
        name = topic_name(topic)
        call = calls.update(name, ttl, pointers, pointer_timeout, max_bytes)
        return calls.topic(name, await self._call(call))

    async def get(self, topic: str) -> Topic:
        """Return a topic with its properties."""
        name = topic_name(topic)
        return calls.topic(name, await self._call(calls.get(name)))

    async def list(self, namespace: str = DEFAULT_NAMESPACE) -> tuple[Topic, ...]:
        """Return the topics of a namespace, sorted by name."""
        return calls.topics(namespace, await self._call(calls.list_topics(namespace)))

    async def namespaces(self) -> tuple[Namespace, ...]:
        """Return the namespaces that have topics, sorted by name."""
        return await lists.all_pages(lists.list_namespaces(), self._call, lists.namespaces)

    async def leases(self) -> tuple[Lease, ...]:
        """Return the leases that were ever held, sorted by name."""
        return await lists.all_pages(lists.list_leases(), self._call, lists.leases)

    async def delete(self, topic: str) -> None:
        """Delete a topic with its messages.

        If the answer to an attempt was lost, a topic that is not there counts as deleted.
        """
        call = calls.delete(topic_name(topic))
        answer, lost = await self._agents.ask(call)
        error = calls.refusal(call, answer)
        if error is not None and not (lost and isinstance(error, TopicNotFound)):
            raise error

    def publish(
        self, topic: str, *messages: Sendable, durable: bool = True
    ) -> "asyncio.Future[None]":
        """Publish messages. The future is done when all of them are durable at the agent.

        The messages of one call are stored together or not at all. Calls for one topic are stored
        in their order; concurrent calls share requests. If an answer is lost, the request is sent
        again, so messages may be stored twice. The future raises what other calls raise, and
        BufferFullError. Cancel it to withdraw messages that have not been sent.

        ``durable=False``: the future is done at once. The messages are tried again until the agent
        has them, refuses them or the topic is gone; if there is no room they are dropped. See
        ``counters``.

        Raises ValueError for a bad name, MessageError for a bad message, and ValueError after
        ``aclose``.
        """
        new = publication(topic, messages, self.retry_for if durable else None)
        if self._closed:
            raise ValueError(CLOSED)
        future = asyncio.wrap_future(new.future if durable else done())
        self.enter(new, self.room.take(len(new.messages), new.size))
        return future

    def enter(self, new: Publication, has_room: bool) -> None:
        """Publish messages for which there is room, in the event loop; fail others."""
        if has_room:
            self._publisher.add(new)
        else:
            self._publisher.drop(len(new.messages))
            fail(
                new.future,
                BufferFullError(f"the buffer is full ({self.room.messages:,} messages)"),
            )

    async def poll(
        self,
        topic: str,
        start_from: str | int | datetime | None = None,
        *,
        inclusive: bool = True,
        limit: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
        transaction: ForeignTransaction | None = None,
    ) -> Polled:
        """Return messages that are in the topic now, without waiting for others.

        ``start_from``: a message's id, a time, or milliseconds since 1970; None: the oldest. If not
        ``inclusive``, the message of this id or of this millisecond is left out. ``limit``: the
        agent may return fewer. No messages: there are none from there on, or the answer has
        ``held_by``. ``isolation``: see ``TopicConsumer``. ``transaction``: a foreign transaction
        that decides which messages under pointers are returned; the isolation is then always
        read_committed.
        """
        call = calls.poll(topic_name(topic), start_from, inclusive, limit, isolation, transaction)
        return calls.polled(await self._call(call))

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
        """Follow a topic, with the address and the password of this object.

        See ``TopicConsumer``.
        """
        return TopicConsumer(
            self._agents.urls,
            topic,
            start=start,
            isolation=isolation,
            name=name,
            state_file=state_file,
            password=self._password,
            proxy=self._proxy,
            timeout=self._timeout,
            heartbeat_timeout=heartbeat_timeout,
            backoff=self._backoff,
            save_interval=save_interval,
            max_unacked=max_unacked,
        )

    def transaction(
        self,
        group: str | None = None,
        topic: str | None = None,
        timeout: float = 60.0,
        lease: tuple[str, int] | None = None,
    ) -> AsyncTransaction:
        """Return a transaction, to be used with ``async with``; see ``AsyncTransaction``.

        ``group``: transactions of a group have one order; None: ``default``. ``topic``: the only
        topic that it writes to, which is then the commit log. ``timeout``: seconds from its begin
        after which it cannot commit, 900 at most. ``lease``: name and term of a lease; if another
        term has begun when it is to commit, it is aborted. Each transaction has a buffer of its
        own, with the limits of this object.
        """
        begin = transactions.begin(group, topic, timeout, lease)
        if self._closed:
            raise ValueError(CLOSED)
        core = TransactionCore(self._agents, begin, timeout, self._batch_size, Room(*self._limits))
        self._transactions.add(core)
        return AsyncTransaction(core)

    def foreign_publisher(
        self, *, max_buffered_bytes: int = MAX_BUFFERED_BYTES
    ) -> AsyncForeignPublisher:
        """Return a publisher that takes part in transactions of another transaction manager.

        ``max_buffered_bytes``: messages of one transaction, as JSON, that are kept here; more are
        stored at the agent. See ``AsyncForeignPublisher``.
        """
        if self._closed:
            raise ValueError(CLOSED)
        core = ForeignCore(self.pointers, self._batch_size, max_buffered_bytes)
        return AsyncForeignPublisher(core)

    async def entries(
        self, topic: str, *, after: int | None = None, limit: int | None = None
    ) -> tuple[Entry, ...]:
        """Return entries of a topic as the agent has them, without messages, for operators.

        ``after``: offset of the entry before; None: the newest entries. ``limit``: 1,000 at most;
        None: 100.
        """
        call = foreign.list_entries(topic_name(topic), after, limit)
        return foreign.entries(await self._call(call))

    async def list_transactions(
        self,
        *,
        state: str | None = None,
        group: str | None = None,
        limit: int | None = None,
    ) -> tuple[TransactionStatus, ...]:
        """Return transactions, the newest first.

        ``state``: open, committing, committed or aborted; None: any. ``limit``: 1,000 at most;
        None: 100.
        """
        call = transactions.list_transactions(state, group, limit)
        return transactions.statuses(await self._call(call))

    async def get_transaction(self, txn: str) -> TransactionStatus:
        """Return a transaction. Raises RefusedError if there is none of this id."""
        return transactions.status(await self._call(transactions.get(txn)))

    async def abort_transaction(self, txn: str) -> TransactionStatus:
        """Abort a transaction and return it. One that was aborted before is returned.

        Raises RefusedError if there is none of this id, or if it is committed.
        """
        return transactions.status(await self._call(transactions.abort(txn)))

    async def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all messages published before are durable, refused or given up.

        Raises FlushError after ``timeout`` seconds (None: never), or at once if the agent refuses
        messages of ``durable=False`` for a cause such as a wrong password. They stay in the buffer.
        """
        await self._publisher.flush(timeout)

    async def aclose(self, timeout: float | None = 30.0) -> None:
        """Refuse further messages and flush. Raises FlushError; messages that are left are lost.

        Transactions that are open are aborted; a commit on its way is awaited.
        """
        self._closed = True
        self.room.close()
        try:
            flushed, *_ = await asyncio.gather(
                self._publisher.flush(timeout),
                *(each.close(timeout) for each in list(self._transactions)),
                return_exceptions=True,
            )
            if flushed is not None:
                raise flushed
        finally:
            await self._publisher.end()
            await self._http.aclose()

    @property
    def counters(self) -> PublishCounters:
        """Return a copy of the counters of ``publish``."""
        return self._publisher.counters

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _call(self, call: Call) -> Answer:
        answer, _ = await self._agents.ask(call)
        error = transactions.refusal(call, answer)
        if error is not None:
            raise error
        return answer
