"""Both producers with the interface of ``Producer``, for the same tests."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, cast

from oplogc import AsyncProducer, Counters, Producer


class AsyncInThread:
    """An ``AsyncProducer`` in its own event loop. Calls wait for their end."""

    def __init__(self, url: str, **options: Any) -> None:
        self._producer = AsyncProducer(url, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._do(self._producer.__aenter__())

    def send(self, event: str, type: str, id: str, **options: Any) -> None:
        self._do(self._producer.send(event, type, id, **options))

    def flush(self, timeout: float | None = 30.0) -> None:
        self._do(self._producer.flush(timeout))

    def close(self, timeout: float | None = 30.0) -> None:
        self._do(self._producer.close(timeout))

    @property
    def counters(self) -> Counters:
        return self._producer.counters

    def end(self) -> None:
        self._do(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Producers:
    """Makes producers of one kind, and ends their event loops."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._made: list[AsyncInThread] = []

    def __call__(self, url: str, **options: Any) -> Producer:
        if self._kind == "threads":
            return Producer(url, **options)
        producer = AsyncInThread(url, **options)
        self._made.append(producer)
        return cast(Producer, producer)

    def end(self) -> None:
        for producer in self._made:
            producer.end()
