"""Publishing under foreign transactions, and requests under their pointers, from threads."""

import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from oplogc.process.blocking import blocking
from oplogc.process.forks import OfOneProcess
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.calls.pointers import Published
from oplogc.topics.foreign.core import ForeignCore
from oplogc.topics.foreign.pointers import AsyncPointers, Pointer
from oplogc.topics.messages.message import Sendable, encode
from oplogc.topics.messages.names import topic_name
from oplogc.topics.messages.snapshot import pointer_of

_R = TypeVar("_R")


class Run(Protocol):
    """Runs a coroutine in the client's event loop, and returns its result."""

    def __call__(self, work: Coroutine[Any, Any, _R]) -> _R: ...


class Pointers:
    """Requests under pointers. Any thread may call any method. Made by ``Topics.pointers``.

    A pointer is a whole number from 0 to 2^62 - 1. A call concerns its messages in one topic, and
    not those in other topics. Calls raise the errors of ``Topics``. If the answer to ``store``, or
    to ``publish`` with messages, is lost they raise OutcomeUnknownError.
    """

    def __init__(self, twin: Callable[[], tuple[AsyncPointers, LoopThread]]) -> None:
        self._twin = twin

    publish = blocking(AsyncPointers.publish)
    store = blocking(AsyncPointers.store)
    rollback = blocking(AsyncPointers.rollback)
    commit = blocking(AsyncPointers.commit)
    abort = blocking(AsyncPointers.abort)
    list = blocking(AsyncPointers.list)
    list_all = blocking(AsyncPointers.list_all)


class ForeignPublisher(OfOneProcess):
    """Publishes messages under the transactions of another transaction manager, one by one.

    Any thread may call any method. Made by ``Topics.foreign_publisher``. Only the process of its
    maker may use it. See ``AsyncForeignPublisher`` for the order of the steps.
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
