"""Publishing under foreign transactions, and requests under their pointers, from threads."""

import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from oplogc.process.forks import OfOneProcess
from oplogc.topics.calls.lists import ListedPointer
from oplogc.topics.calls.pointers import OpenPointer, Published
from oplogc.topics.foreign.core import ForeignCore
from oplogc.topics.foreign.pointers import AsyncPointers, Pointer
from oplogc.topics.messages.message import Sendable, encode
from oplogc.topics.messages.names import topic_name
from oplogc.topics.messages.snapshot import pointer_of

_R = TypeVar("_R")


class RunPointers(Protocol):
    """Runs a call of ``AsyncPointers`` in the client's event loop, and returns its result."""

    def __call__(self, call: Callable[[AsyncPointers], Coroutine[Any, Any, _R]]) -> _R: ...


class Run(Protocol):
    """Runs a coroutine in the client's event loop, and returns its result."""

    def __call__(self, work: Coroutine[Any, Any, _R]) -> _R: ...


class Pointers:
    """Requests under pointers. Any thread may call any method. Made by ``Topics.pointers``.

    The arguments and errors are those of ``AsyncPointers``.
    """

    def __init__(self, run: RunPointers) -> None:
        self._run = run

    def publish(self, topic: str, pointer: Pointer, *messages: Sendable) -> Published:
        """Publish messages, or without any the stored ones. Return their places."""
        return self._run(lambda pointers: pointers.publish(topic, pointer, *messages))

    def store(self, topic: str, pointer: Pointer, *messages: Sendable) -> None:
        """Store messages under a pointer. Readers get them after ``publish``."""
        self._run(lambda pointers: pointers.store(topic, pointer, *messages))

    def rollback(
        self,
        topic: str,
        pointer: Pointer,
        published: Published | Sequence[str] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Remove messages of a pointer from a topic, for every reader.

        ``published``: the answer of ``publish``, or keys of such answers. None: everything under
        the pointer. ``force``: also after the report of a commit.
        """
        self._run(lambda pointers: pointers.rollback(topic, pointer, published, force=force))

    def commit(self, pointer: Pointer, topics: Sequence[str]) -> None:
        """Report that the transaction of a pointer has committed, in all ``topics`` or in none."""
        self._run(lambda pointers: pointers.commit(pointer, topics))

    def abort(self, pointer: Pointer, topics: Sequence[str]) -> None:
        """Report that the transaction of a pointer was aborted, in all ``topics`` or in none."""
        self._run(lambda pointers: pointers.abort(pointer, topics))

    def list(self, topic: str, limit: int | None = None) -> tuple[OpenPointer, ...]:
        """Return the open pointers of a topic, the oldest first. ``limit``: 1,000 at most."""
        return self._run(lambda pointers: pointers.list(topic, limit))

    def list_all(self) -> tuple[ListedPointer, ...]:
        """Return the open pointers of all topics, the oldest first."""
        return self._run(lambda pointers: pointers.list_all())


class ForeignPublisher(OfOneProcess):
    """Publishes messages under the transactions of another transaction manager, one by one.

    Any thread may call any method. Made by ``Topics.foreign_publisher``. It belongs to the process
    that made it. See ``AsyncForeignPublisher`` for the order of the steps.
    """

    def __init__(self, owner: object, run: Run, core: ForeignCore) -> None:
        super().__init__("the publisher belongs to the process that made it")
        self._owner = owner  # its event loop would end with it
        self._run = run
        self._core = core
        self._lock = threading.Lock()

    @property
    def pointer(self) -> int | None:
        """The write pointer of the transaction. None before ``start`` and after ``rollback``."""
        return self._core.pointer

    def start(self, transaction: Pointer) -> None:
        """Take part in a transaction.

        ``transaction``: a ``ForeignTransaction``, another object with ``write_pointer``, or the
        write pointer alone. Raises ValueError, also if messages of the transaction before are
        neither persisted nor rolled back.
        """
        pointer = pointer_of(transaction)
        self._check_process()
        with self._lock:
            self._core.start(pointer)

    def publish(self, topic: str, *messages: Sendable) -> None:
        """Add messages to the transaction. They are buffered, and stored at the agent above a size.

        Raises ValueError and MessageError, after which the transaction may go on. After another
        error it must be rolled back.
        """
        name, encoded = topic_name(topic), [encode(message) for message in messages]
        self._check_process()
        with self._lock:  # in the order of the calls
            if self._core.enter(name, encoded):
                self._run(self._core.spill())

    def persist(self) -> tuple[Published, ...]:
        """Publish all messages of the transaction. Return the answers for all its topics."""
        self._check_process()
        with self._lock:
            return self._run(self._core.persist())

    def rollback(self) -> None:
        """Remove the messages of the transaction from all its topics, for every reader.

        First the pointer is reported as aborted in these topics. Raises TransactionError if it has
        committed, OutcomeUnknownError if no agent has answered. A repeated call treats the
        remaining topics.
        """
        self._check_process()
        with self._lock:
            self._run(self._core.rollback())
