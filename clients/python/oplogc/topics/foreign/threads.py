"""Publishing under foreign transactions, and requests under their pointers, from threads."""

import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from oplogc.process.forks import after_fork
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
    """``AsyncPointers`` for threads; any thread may call any method.

    Made by ``Topics.pointers``.
    """

    def __init__(self, run: RunPointers) -> None:
        self._run = run

    def publish(self, topic: str, pointer: Pointer, *messages: Sendable) -> Published:
        """Publish messages under a pointer, or those stored; see ``AsyncPointers.publish``."""
        return self._run(lambda pointers: pointers.publish(topic, pointer, *messages))

    def store(self, topic: str, pointer: Pointer, *messages: Sendable) -> None:
        """Store messages under a pointer; see ``AsyncPointers.store``."""
        self._run(lambda pointers: pointers.store(topic, pointer, *messages))

    def rollback(
        self,
        topic: str,
        pointer: Pointer,
        published: Published | Sequence[str] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Remove messages of a pointer from a topic; see ``AsyncPointers.rollback``."""
        self._run(lambda pointers: pointers.rollback(topic, pointer, published, force=force))

    def commit(self, pointer: Pointer, topics: Sequence[str]) -> None:
        """Report that a pointer's transaction has committed; see ``AsyncPointers.commit``."""
        self._run(lambda pointers: pointers.commit(pointer, topics))

    def abort(self, pointer: Pointer, topics: Sequence[str]) -> None:
        """Report that a pointer's transaction was aborted; see ``AsyncPointers.commit``."""
        self._run(lambda pointers: pointers.abort(pointer, topics))

    def list(self, topic: str, limit: int | None = None) -> tuple[OpenPointer, ...]:
        """Return the open pointers of a topic; see ``AsyncPointers.list``."""
        return self._run(lambda pointers: pointers.list(topic, limit))

    def list_all(self) -> tuple[ListedPointer, ...]:
        """Return the open pointers of all topics; see ``AsyncPointers.list_all``."""
        return self._run(lambda pointers: pointers.list_all())


class ForeignPublisher:
    """``AsyncForeignPublisher`` for threads; any thread may call any method.

    Made by ``Topics.foreign_publisher``. It belongs to the process that made it.
    """

    def __init__(self, owner: object, run: Run, core: ForeignCore) -> None:
        self._owner = owner  # its event loop would end with it
        self._run = run
        self._core = core
        self._lock = threading.Lock()
        self._is_lost = False
        after_fork(self, ForeignPublisher._lose)

    @property
    def pointer(self) -> int | None:
        """The write pointer of the transaction; None before ``start`` and after ``rollback``."""
        return self._core.pointer

    def start(self, transaction: Pointer) -> None:
        """Take part in a transaction; see ``AsyncForeignPublisher.start``."""
        pointer = pointer_of(transaction)
        self._check()
        with self._lock:
            self._core.start(pointer)

    def publish(self, topic: str, *messages: Sendable) -> None:
        """Add messages to the transaction; see ``AsyncForeignPublisher.publish``."""
        name, encoded = topic_name(topic), [encode(message) for message in messages]
        self._check()
        with self._lock:  # in the order of the calls
            if self._core.enter(name, encoded):
                self._run(self._core.spill())

    def persist(self) -> tuple[Published, ...]:
        """Publish all messages of the transaction; see ``AsyncForeignPublisher.persist``."""
        self._check()
        with self._lock:
            return self._run(self._core.persist())

    def rollback(self) -> None:
        """Remove the messages of the transaction; see ``AsyncForeignPublisher.rollback``."""
        self._check()
        with self._lock:
            self._run(self._core.rollback())

    def _check(self) -> None:
        if self._is_lost:
            raise ValueError("the publisher belongs to the process that made it")

    def _lose(self) -> None:
        self._is_lost = True
