"""The regular work on transactions. Only the holder of the lease does it."""

import asyncio

from pymongo.errors import PyMongoError

from oplogd.errors import StoreUnavailableError, TransactionNotFoundError
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.topics.setup import TopicsSetup
from oplogd.store.mongo.transactions.completion import Completion
from oplogd.store.mongo.transactions.decision import TransactionDecider
from oplogd.store.mongo.transactions.operations import OperationAppender
from oplogd.store.mongo.transactions.payloads import Payloads
from oplogd.store.mongo.transactions.rows import TransactionRows

# Time after a decision in which the agent that has decided may complete it alone.
_SETTLED_MS = 3_000

# Time between two searches for old rows, and between two checks of the indexes.
_TIDY_SECONDS = 60.0


class TransactionKeeper:
    def __init__(
        self,
        link: Link,
        lease: FoldLease,
        rows: TransactionRows,
        decider: TransactionDecider,
        completion: Completion,
        payloads: Payloads,
        operations: OperationAppender,
        setup: TopicsSetup,
    ) -> None:
        self._link = link
        self._lease = lease
        self._rows = rows
        self._decider = decider
        self._completion = completion
        self._payloads = payloads
        self._operations = operations
        self._setup = setup
        self._tidied_at = float("-inf")

    async def keep(self) -> int:
        """See ``Transactions.keep``. A transaction that fails does not hold up the others.

        Raises PyMongo's errors, and StoreUnavailableError.
        """
        if not self._lease.held:
            return 0
        now_ms = await self._link.now_ms()
        count = 0
        trouble: Exception | None = None
        await self._rows.date_again()
        for id_ in await self._rows.due(now_ms - _SETTLED_MS):
            try:
                await self._completion.complete(await self._decider.current(id_))
                count += 1
            except TransactionNotFoundError:
                continue
            except (PyMongoError, StoreUnavailableError) as error:
                trouble = error
            if not self._lease.held:
                return count
        now = self._link.clock.boot()
        if now - self._tidied_at >= _TIDY_SECONDS:
            await self._setup.create_index()
            await self._rows.create_index()
            await self._forget()
            self._tidied_at = now
        if trouble is not None:
            raise trouble
        return count

    async def _forget(self) -> None:
        while self._lease.held and (ids := await self._rows.old()):
            for each in ids:
                # A write that came too late may have left something.
                await self._payloads.remove(each)
            await self._operations.forget(ids)
            await self._rows.forget(ids)
            await asyncio.sleep(0)
