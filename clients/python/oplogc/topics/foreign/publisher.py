"""Publishing under foreign transactions from an event loop."""

import asyncio

from oplogc.topics.calls.pointers import Published
from oplogc.topics.foreign.core import ForeignCore
from oplogc.topics.foreign.pointers import Pointer
from oplogc.topics.messages.message import Sendable, encode
from oplogc.topics.messages.names import topic_name
from oplogc.topics.messages.snapshot import pointer_of


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

    A request with messages is not repeated after a lost answer, because it could store
    them twice: OutcomeUnknownError. After any error of an agent only ``rollback`` is
    possible.
    """

    def __init__(self, core: ForeignCore) -> None:
        self.core = core
        """The part common to asyncio and threads."""
        self._turn = asyncio.Lock()

    @property
    def pointer(self) -> int | None:
        """The write pointer of the transaction. None before ``start`` and after ``rollback``."""
        return self.core.pointer

    async def start(self, transaction: Pointer) -> None:
        """Take part in a transaction.

        ``transaction``: a ``ForeignTransaction``, another object with ``write_pointer``, or the
        write pointer alone. Raises ValueError, also if messages of the transaction before are
        neither persisted nor rolled back.
        """
        pointer = pointer_of(transaction)
        async with self._turn:
            self.core.start(pointer)

    async def publish(self, topic: str, *messages: Sendable) -> None:
        """Add messages to the transaction.

        They are buffered. If they have too many bytes, all are stored at the agent, where no reader
        gets them before ``persist``. Raises ValueError and MessageError, after which the
        transaction may go on. OutcomeUnknownError, RefusedError and UnavailableError: it must be
        rolled back. TransactionError: it must be rolled back since an earlier error.
        """
        name, encoded = topic_name(topic), [encode(message) for message in messages]
        async with self._turn:  # in the order of the calls
            if self.core.enter(name, encoded):
                await self.core.spill()

    async def persist(self) -> tuple[Published, ...]:
        """Publish all messages of the transaction. Return the answers for all its topics.

        The messages of a topic take one request if they fit. Otherwise they are stored, and
        published together. A repeated call sends only messages added since. Raises as ``publish``.
        """
        async with self._turn:
            return await self.core.persist()

    async def rollback(self) -> None:
        """Remove the messages of the transaction from all its topics, for every reader.

        If the outcome of a request is unknown, or messages are only stored, everything under the
        pointer in this topic is removed. First the pointer is reported as aborted in these topics.
        Then a request on its way has no effect, and the pointer cannot be used again.

        Nothing is removed unless the agents accept this report: TransactionError if the pointer has
        committed, OutcomeUnknownError if no agent has answered. Raises RefusedError and
        UnavailableError, too. A repeated call treats the remaining topics. Without a transaction it
        does nothing.
        """
        async with self._turn:
            await self.core.rollback()
