"""Publishing under foreign transactions: messages are buffered, stored, published, rolled back."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from oplogc.topics.calls.pointers import Published
from oplogc.topics.foreign.pointers import AsyncPointers, Pointer
from oplogc.topics.messages.batch import batches
from oplogc.topics.messages.message import Sendable, encode
from oplogc.topics.messages.names import TopicName, topic_name
from oplogc.topics.messages.snapshot import pointer_of
from oplogc.wire.errors import (
    OplogError,
    OutcomeUnknownError,
    RefusedError,
    TopicNotFound,
    TransactionError,
    UnavailableError,
)

MAX_BUFFERED_BYTES = 1024 * 1024
_INTERRUPTED = "a request was interrupted"
_NOT_KNOWN = "it is not known whether pointer {} has committed, so nothing was rolled back"
# In the sentence of a 409. Agents before the present version refuse an abort after the time-out.
_COMMITTED = "committed"
_TIMED_OUT = "timed out"


@dataclass(eq=False, slots=True)
class _Part:
    """The messages of the transaction in one topic.

    ``messages``: encoded, not sent yet. ``has_stored``: messages are stored and not published.
    ``is_unknown``: a request is on its way, or its outcome is unknown.
    """

    name: TopicName
    messages: list[bytes] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    has_stored: bool = False
    is_unknown: bool = False


class AsyncForeignPublisher:
    """Publishes messages under the transactions of another transaction manager, one by one.

    Made by ``AsyncTopics.foreign_publisher``. Take part in a transaction in this order:

    1. ``start`` with the transaction, and ``publish`` while it does its work.
    2. The changes of the transaction elsewhere.
    3. ``persist``, as the last participant: until the manager decides, its messages may hold
       readers.
    4. The commit of the transaction manager.

    If one of these steps fails, call ``rollback``, and abort the transaction. If the outcome of
    the manager's commit is unknown, find it out first.

    Readers without a snapshot wait for a report, ``AsyncTopics.pointers.commit`` or ``abort``.

    A request with messages is not repeated after a lost answer, because it could store them
    twice: OutcomeUnknownError. After any error of an agent only ``rollback`` is possible.
    """

    def __init__(self, pointers: AsyncPointers, batch_size: int, max_buffered_bytes: int) -> None:
        """``batch_size``: messages in a request at most. ``max_buffered_bytes``: encoded messages
        of all topics. Above it they are stored. Raises ValueError.
        """
        if type(max_buffered_bytes) is not int or max_buffered_bytes < 1:
            raise ValueError("max_buffered_bytes must be a whole number of at least 1")
        self._pointers = pointers
        self._batch_size = batch_size
        self._max_buffered_bytes = max_buffered_bytes
        self._bytes = 0
        self._parts: dict[TopicName, _Part] = {}
        self._failure: OplogError | str = ""
        """The reason why only a rollback is possible. Empty: everything is."""
        self._pointer: int | None = None
        self._turn = asyncio.Lock()

    @property
    def pointer(self) -> int | None:
        """The write pointer of the transaction. None before ``start`` and after ``rollback``."""
        return self._pointer

    async def start(self, transaction: Pointer) -> None:
        """Take part in a transaction.

        ``transaction``: a ``ForeignTransaction``, another object with ``write_pointer``, or the
        write pointer alone. Raises ValueError, also if messages of the transaction before are
        neither persisted nor rolled back.
        """
        pointer = pointer_of(transaction)
        async with self._turn:
            parts = self._parts.values()
            if self._failure or any(part.messages or part.has_stored for part in parts):
                raise ValueError(
                    f"the messages of pointer {self._pointer} are not persisted: persist them or"
                    " roll them back first"
                )
            self._parts = {}
            self._pointer = pointer

    async def publish(self, topic: str, *messages: Sendable) -> None:
        """Add messages to the transaction.

        They are buffered. If they have too many bytes, all are stored at the agent, where no reader
        gets them before ``persist``. Raises ValueError and MessageError, after which the
        transaction may go on. OutcomeUnknownError, RefusedError and UnavailableError: it must be
        rolled back. TransactionError: it must be rolled back since an earlier error.
        """
        name, encoded = topic_name(topic), [encode(message) for message in messages]
        async with self._turn:  # in the order of the calls
            if self._enter(name, encoded):
                await self._spill()

    def _enter(self, name: TopicName, messages: Sequence[bytes]) -> bool:
        """Buffer messages. Return whether to store them. Raises ValueError and TransactionError."""
        self._check()
        if not messages:
            raise ValueError("publish: give at least one message")
        part = self._parts.setdefault(name, _Part(name))
        part.messages += messages
        self._bytes += sum(map(len, messages))
        return self._bytes > self._max_buffered_bytes

    async def _spill(self) -> None:
        """Store the buffered messages. Raises OplogError. Then only a rollback is possible."""
        self._check()
        for part in self._parts.values():
            await self._store(part)
        self._bytes = 0

    async def persist(self) -> tuple[Published, ...]:
        """Publish all messages of the transaction. Return the answers for all its topics.

        The messages of a topic take one request if they fit. Otherwise they are stored, and
        published together. A repeated call sends only messages added since. Raises as ``publish``.
        """
        async with self._turn:
            pointer = self._check()
            for part in self._parts.values():
                await self._publish(pointer, part)
            self._bytes = 0
            return tuple(answer for part in self._parts.values() for answer in part.published)

    async def rollback(self) -> None:
        """Remove the messages of the transaction from all its topics, for every reader.

        First the pointer is reported as aborted in these topics: a request on its way has no effect
        then, and the pointer cannot be used again. If the outcome of a request is unknown, or
        messages are only stored, everything under the pointer in this topic is removed.

        Nothing is removed unless the agents accept this report: TransactionError if the pointer has
        committed, OutcomeUnknownError if no agent has answered. Raises RefusedError and
        UnavailableError, too. A repeated call treats the remaining topics.
        """
        async with self._turn:
            pointer = self._pointer
            if pointer is None:
                return
            self._failure = self._failure or "its rollback is not complete"
            refusal: RefusedError | None = None
            for part in list(self._parts.values()):
                try:
                    await self._roll_back(pointer, part)
                    del self._parts[part.name]
                except RefusedError as error:
                    if _is_gone(error):
                        del self._parts[part.name]
                    else:
                        refusal = refusal or error
            if refusal is not None:
                raise refusal
            self._failure, self._bytes, self._pointer = "", 0, None

    def _check(self) -> int:
        if self._pointer is None:
            raise ValueError("no transaction: call start first")
        if self._failure:
            error = TransactionError(
                f"pointer {self._pointer} must be rolled back: {self._failure}"
            )
            error.__cause__ = self._failure if isinstance(self._failure, OplogError) else None
            raise error
        return self._pointer

    async def _store(self, part: _Part) -> None:
        pointer = self._check()
        for batch in list(batches(part.messages, self._batch_size)):
            with self._sending(part):
                await self._pointers.store_encoded(part.name, pointer, batch)
            part.has_stored = True
        part.messages = []

    async def _publish(self, pointer: int, part: _Part) -> None:
        if part.has_stored or len(list(batches(part.messages, self._batch_size))) > 1:
            await self._store(part)
        if not part.has_stored and not part.messages:
            return
        with self._sending(part):
            answer = await self._pointers.publish_encoded(part.name, pointer, part.messages)
            if not answer.places:
                raise TransactionError(
                    f"the messages stored in {part.name} are gone; was the topic deleted?"
                )
        part.published.append(answer)
        part.messages, part.has_stored = [], False

    async def _roll_back(self, pointer: int, part: _Part) -> None:
        has_unpublished = part.is_unknown or part.has_stored
        if not has_unpublished and not part.published:
            return
        name = str(part.name)
        try:
            # Only uncommitted messages may be removed. And a request still on its way must find
            # the pointer closed.
            await self._pointers.abort(pointer, [name])
        except UnavailableError as error:
            if not error.lost:
                raise
            raise OutcomeUnknownError(f"abort: {_NOT_KNOWN.format(pointer)}: {error}") from error
        except RefusedError as error:
            if error.status != 409:
                raise
            if _COMMITTED in error.detail:
                self._release()
                text = f"pointer {pointer} has committed, so nothing was rolled back in {name}"
                raise TransactionError(text) from error
            if _TIMED_OUT not in error.detail:
                text = f"{_NOT_KNOWN.format(pointer)} in {name}: {error}"
                raise TransactionError(text) from error
        if has_unpublished:
            await self._pointers.rollback(name, pointer)
            return
        for answer in part.published:
            await self._pointers.rollback(name, pointer, answer)

    def _release(self) -> None:
        """Let another transaction start: this one has committed."""
        self._failure, self._bytes = "", 0
        for part in self._parts.values():
            part.messages, part.has_stored = [], False

    @contextmanager
    def _sending(self, part: _Part) -> Iterator[None]:
        """Allow nothing but a rollback from a request on until it has ended well."""
        self._failure, part.is_unknown = _INTERRUPTED, True
        try:
            yield
        except OplogError as error:
            self._failure, part.is_unknown = error, _may_be_done(error)
            raise
        self._failure, part.is_unknown = "", False


def _is_gone(error: RefusedError) -> bool:
    """Return whether an agent confirms that the topic is gone, with its messages.

    An agent or a proxy without this path answers with 404, too. Then the messages may be there.
    """
    return isinstance(error, TopicNotFound) and str(error).startswith("there is no topic")


def _may_be_done(error: OplogError) -> bool:
    """Return whether an agent may have carried out a request in spite of this error."""
    if isinstance(error, UnavailableError):
        return error.lost
    return not isinstance(error, RefusedError)
