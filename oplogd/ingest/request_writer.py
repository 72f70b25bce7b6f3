"""A writer for items whose senders wait: it tries nothing again."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from logging import Logger
from typing import Generic, TypeVar

from oplogd.errors import NotConfirmedError, StoreUnavailableError
from oplogd.ingest.appends import Appends, as_unavailable
from oplogd.watch.bounded import BoundedQueue, Waiting
from oplogd.watch.health import Health

BATCH_COUNT = 5_000
BATCH_BYTES = 4 * 1024 * 1024
# After this time without a request, a failed append says nothing about the store any more.
FORGET_SECONDS = 5.0

_Item = TypeVar("_Item", bound=Waiting)


class RequestWriter(ABC, Generic[_Item]):
    """Appends items in order. Requests that arrive during a commit share the next commit.

    A batch that the store does not take is dropped after its requests have failed: a thing that was
    answered with an error must not be stored after later things of its sender. So this writer tries
    nothing again, unlike the writer of operations.
    """

    def __init__(
        self,
        queue: BoundedQueue[_Item],
        health: Health,
        name: str,
        logger: Logger,
        appends: Appends | None,
    ) -> None:
        self._queue = queue
        self._part = health.part(name)
        self._logger = logger
        self._appends = appends or Appends(health)

    @abstractmethod
    async def append(self, items: Sequence[_Item]) -> None:
        """Append the content of these items to the store, and give each item its outcome."""

    def dropped(self, count: int) -> None:
        """Note that the requests of so many items have failed."""

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            items = await self._take()
            try:
                with as_unavailable(self._part, self._logger), self._watched(items):
                    await self.append(items)
            except NotConfirmedError as error:  # the store works; others need not wait
                self._queue.refuse(items, error)
                self.dropped(sum(item.count for item in items))
            except StoreUnavailableError as error:
                self._part.bad(str(error))
                self._queue.refuse(items, NotConfirmedError(str(error)))
                waiting = self._queue.refuse_waiting(StoreUnavailableError(str(error)))
                self.dropped(sum(item.count for item in items) + waiting)
            else:
                self._part.good()
                self._queue.finish(items)

    def _watched(self, items: Sequence[_Item]) -> AbstractContextManager[None]:
        def give_up(error: NotConfirmedError) -> None:
            """Answer requests. The items keep their room: they are still being written."""
            for item in items:
                item.fail(error)
            self.dropped(self._queue.refuse_waiting(StoreUnavailableError(str(error))))

        return self._appends.step(give_up)

    async def _take(self) -> list[_Item]:
        """Take items. Without any, a trouble ends: otherwise an idle agent would stay degraded."""
        if self._part.trouble is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FORGET_SECONDS):
                    return await self._queue.take(BATCH_COUNT, BATCH_BYTES)
            self._part.good("no request has failed since")
        return await self._queue.take(BATCH_COUNT, BATCH_BYTES)
