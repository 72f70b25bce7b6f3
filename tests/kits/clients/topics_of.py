"""Both kinds of topics with the interface of ``Topics``, for the same tests."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Self, cast

from oplogc.topics import (
    AsyncTopics,
    AsyncTransaction,
    Committed,
    ForeignPublisher,
    Pointers,
    PublishCounters,
    TopicConsumer,
    Topics,
)
from tests.kits.agents.agent import DEADLINE


class AsyncTopicsInThread:
    """``AsyncTopics`` in its own event loop. Calls wait for their end."""

    def __init__(self, url: str | Sequence[str], **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._topics = self._do(self._make(url, options))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            return self._do(getattr(self._topics, name)(*arguments, **options))

        return call

    def publish(self, topic: str, *messages: Any, durable: bool = True) -> "Future[None]":
        async def start() -> "asyncio.Future[None]":
            return cast(AsyncTopics, self._topics).publish(topic, *messages, durable=durable)

        async def wait(started: "asyncio.Future[None]") -> None:
            await started

        return asyncio.run_coroutine_threadsafe(wait(self._do(start())), self._loop)

    def transaction(self, **options: Any) -> "AsyncTransactionInThread":
        return AsyncTransactionInThread(self._topics.transaction(**options), self._do, self._loop)

    def foreign_publisher(self, **options: Any) -> ForeignPublisher:
        return cast(ForeignPublisher, InThread(self._topics.foreign_publisher(**options), self._do))

    @property
    def pointers(self) -> Pointers:
        return cast(Pointers, InThread(self._topics.pointers, self._do))

    def stream(self, topic: str, **options: Any) -> TopicConsumer:
        return cast(TopicConsumer, self._topics.stream(topic, **options))

    def close(self, timeout: float | None = 30.0) -> None:
        self._do(self._topics.aclose(timeout))

    @property
    def counters(self) -> PublishCounters:
        async def get() -> PublishCounters:
            return cast(PublishCounters, self._topics.counters)

        return cast(PublishCounters, self._do(get()))

    def end(self) -> None:
        self._do(self._topics.aclose(0))
        self._do(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _make(url: str | Sequence[str], options: dict[str, Any]) -> AsyncTopics:
        return AsyncTopics(url, **options)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class InThread:
    """Awaits the coroutines of an object in the event loop of its topics."""

    def __init__(self, made: object, do: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._made = made
        self._do = do

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._made, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            return self._do(found(*arguments, **options))

        return call


class AsyncTransactionInThread:
    """``AsyncTransaction`` with the interface of ``Transaction``."""

    def __init__(
        self,
        transaction: AsyncTransaction,
        do: Callable[[Coroutine[Any, Any, Any]], Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._transaction = transaction
        self._do = do
        self._loop = loop

    @property
    def id(self) -> str:
        return self._transaction.id

    def write(self, topic: str, message: Any) -> "Future[str | None]":
        async def wait(written: "asyncio.Future[str | None]") -> str | None:
            return await written

        written = self._do(self._transaction.write(topic, message))
        return asyncio.run_coroutine_threadsafe(wait(written), self._loop)

    def commit(self) -> Committed:
        return cast(Committed, self._do(self._transaction.commit()))

    def abort(self) -> None:
        self._do(self._transaction.abort())

    def __enter__(self) -> Self:
        self._do(self._transaction.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._do(self._transaction.__aexit__(*error))


class TopicsOf:
    """Makes topics of one kind, and ends their event loops."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._made: list[AsyncTopicsInThread | Topics] = []

    def __call__(self, url: str | Sequence[str], **options: Any) -> Topics:
        make = Topics if self._kind == "threads" else AsyncTopicsInThread
        made = make(url, **options)
        self._made.append(made)
        return cast(Topics, made)

    def end(self) -> None:
        for made in self._made:
            if isinstance(made, AsyncTopicsInThread):
                made.end()


def all_texts(topics: Topics, topic: str) -> list[str | None]:
    texts: list[str | None] = []
    found = topics.poll(topic).messages
    while found:
        texts += [each.text for each in found]
        found = topics.poll(topic, found[-1].id, inclusive=False).messages
    return texts


def errors_of(futures: "Sequence[Future[str | None]]") -> set[str]:
    return {str(future.exception(DEADLINE)) for future in futures}
