"""Publishing under foreign transactions, and requests under their pointers, from threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from oplogc.process.blocking import blocking, documented_as
from oplogc.process.forks import OfOneProcess
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.foreign.pointers import AsyncPointers
from oplogc.topics.foreign.publisher import AsyncForeignPublisher
from oplogc.topics.messages.message import Sendable, encode
from oplogc.topics.messages.names import topic_name


class Pointers:
    """Requests under pointers. Any thread may call any method. Made by ``Topics.pointers``.

    See ``AsyncPointers``, which has the same methods.
    """

    def __init__(
        self, twin: Callable[[], AbstractContextManager[tuple[AsyncPointers, LoopThread]]]
    ) -> None:
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

    def __init__(self, owner: object, thread: LoopThread, publisher: AsyncForeignPublisher) -> None:
        super().__init__("the publisher belongs to the process that made it")
        self._owner = owner  # the thread would end with it
        self._thread = thread
        self._publisher = publisher
        self._lock = threading.RLock()
        self._is_called = False

    @contextmanager
    def _twin(self) -> Iterator[tuple[AsyncForeignPublisher, LoopThread]]:
        self._check_process()
        self._thread.check_may_wait()
        with self._lock:  # in the order of the calls
            if self._is_called:
                raise RuntimeError(
                    "a signal's handler called this publisher within another of its calls"
                )
            try:
                self._is_called = True
                yield self._publisher, self._thread
            finally:
                self._is_called = False

    @property
    def pointer(self) -> int | None:
        """The write pointer of the transaction. None before ``start`` and after ``rollback``."""
        return self._publisher.pointer

    start = blocking(AsyncForeignPublisher.start)
    persist = blocking(AsyncForeignPublisher.persist)
    rollback = blocking(AsyncForeignPublisher.rollback)

    @documented_as(AsyncForeignPublisher.publish)
    def publish(self, topic: str, *messages: Sendable) -> None:
        name, encoded = topic_name(topic), [encode(message) for message in messages]
        with self._twin() as (publisher, thread):  # a call of the loop only to store
            if publisher._enter(name, encoded):
                thread.call(publisher._spill())
