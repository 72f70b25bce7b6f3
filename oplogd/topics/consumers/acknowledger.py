"""Acknowledgements that arrive together are one call of the store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from oplogd.errors import NotConfirmedError, OplogError, StoreUnavailableError
from oplogd.model.consumer import Acknowledgement, ShardKey
from oplogd.store.consumers import Acknowledged

# Acknowledgements of one call.
_MOST = 1_000

logger = logging.getLogger("oplogd.consumers")

_Waiter = tuple[Acknowledgement, "asyncio.Future[Acknowledged]"]


class Acknowledger:
    """While a call of the store runs, new acknowledgements wait for the next one.

    Of one shard a call has one at a time, in the order of their arrival.
    """

    def __init__(
        self, store: Callable[[Sequence[Acknowledgement]], Awaitable[list[Acknowledged]]]
    ) -> None:
        self._store = store
        self._waiting: list[_Waiter] = []
        self._running: asyncio.Task[None] | None = None

    async def acknowledge(self, given: Acknowledgement) -> Acknowledged:
        """Return the outcome once it is durable. Raises StoreUnavailableError."""
        outcome: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()
        self._waiting.append((given, outcome))
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="acknowledgements")
        return await outcome

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._call(self._next())
        except asyncio.CancelledError:
            waiting, self._waiting = self._waiting, []
            _fail(waiting, NotConfirmedError("the agent stops"))
            raise
        finally:
            self._running = None

    def _next(self) -> list[_Waiter]:
        """Take the next ones: at most _MOST, and one of each shard."""
        taken: dict[ShardKey, _Waiter] = {}
        left: list[_Waiter] = []
        for waiter in self._waiting:
            key = waiter[0].key
            if waiter[1].cancelled():
                continue
            if key in taken or len(taken) >= _MOST:
                left.append(waiter)
            else:
                taken[key] = waiter
        self._waiting = left
        return list(taken.values())

    async def _call(self, waiters: Sequence[_Waiter]) -> None:
        if not waiters:
            return
        try:
            outcomes = await self._store([given for given, _ in waiters])
        except asyncio.CancelledError:
            _fail(waiters, NotConfirmedError("the agent stops"))
            raise
        except OplogError as error:
            _fail(waiters, error)
        except Exception as error:
            logger.error("an acknowledgement failed", exc_info=error)
            _fail(waiters, StoreUnavailableError(f"the store failed, see the log: {error!r}"))
        else:
            for (_, outcome), acknowledged in zip(waiters, outcomes, strict=True):
                if not outcome.done():
                    outcome.set_result(acknowledged)


def _fail(waiters: Sequence[_Waiter], error: OplogError) -> None:
    for _, outcome in waiters:
        if not outcome.done():
            outcome.set_exception(error)
