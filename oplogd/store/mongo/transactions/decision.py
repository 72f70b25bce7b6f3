"""The decision about a transaction, by a request or by the keeper: to commit, or to abort."""

from array import array
from contextlib import suppress

from pymongo.errors import PyMongoError

from oplogd.errors import StoreUnavailableError, TransactionNotFoundError
from oplogd.model.pointer import Decision
from oplogd.model.transaction import Reason
from oplogd.store.mongo.link.fences import holding
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.topics.setup import TopicsSetup
from oplogd.store.mongo.transactions.completion import Completion
from oplogd.store.mongo.transactions.row import TransactionRow, TxnPhase, decided
from oplogd.store.mongo.transactions.rows import TransactionRows
from oplogd.store.transactions import Decisions

# For this time after a decision, only the deciding agent completes it.
_SETTLED_MS = 3_000

# Time between two searches for old rows, and between two checks of the indexes.
_TIDY_SECONDS = 60.0


class TransactionDecider:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(
        self,
        link: Link,
        lease: FoldLease,
        rows: TransactionRows,
        completion: Completion,
        setup: TopicsSetup,
    ) -> None:
        self._link = link
        self._lease = lease
        self._rows = rows
        self._completion = completion
        self._setup = setup
        self._tidied_at = float("-inf")
        self.decisions = Decisions()

    async def current(self, id_: int) -> TransactionRow:
        """Return a transaction. Abort it first if it is overdue.

        Raises TransactionNotFoundError.
        """
        row = await self._rows.find(id_)
        if row.transaction.is_overdue(await self._link.present()):
            return await self.abort(row, Reason.TIMEOUT)
        return row

    async def fenced(self, row: TransactionRow) -> TransactionRow:
        """Return an open transaction as it is. Abort it first if its fence does not hold.

        The row was there before the lease is read. So if the fence holds, a later term has not
        begun to end the transactions of this one: it will meet this row. See ``fences``.
        """
        fence = row.transaction.fence
        if fence is None or row.phase is not TxnPhase.OPEN or await holding(self._link, [fence]):
            return row
        return await self.abort(row, Reason.FENCE)

    async def end_terms(self, lease: str, before: int) -> None:
        """Abort open transactions of the terms of a lease before one. Complete decided ones.

        Call it after a majority has shown that this term, or a later one, has begun. Then no
        transaction of an earlier term commits any more.
        """
        for row in await self._rows.of_terms(lease, before):
            with suppress(TransactionNotFoundError):
                id_ = row.transaction.id
                row = await self.current(id_)
                if row.phase is TxnPhase.OPEN:
                    row = await self.abort(row, Reason.FENCE)
                await self._completion.complete(row)

    async def commit(self, row: TransactionRow, order: "array[int]") -> TransactionRow:
        """Decide to commit an open transaction. Return its row, which tells the decision."""
        id_ = row.transaction.id
        members = decided(order, await self._link.now_ms())
        if (changed := await self._rows.decide(id_, members)) is None:
            return await self.current(id_)
        self.decisions.add(Decision.COMMITTED)
        await self._link.step("decided")
        return changed

    async def abort(self, row: TransactionRow, reason: Reason) -> TransactionRow:
        """Decide to abort an open transaction, and complete the abort.

        Return its row, which tells the decision.
        """
        id_ = row.transaction.id
        changed = await self._rows.abort(id_, reason)
        if changed is None and reason is Reason.TIMEOUT:
            return await self._rows.find(id_)
        if changed is None:
            return await self.current(id_)
        self.decisions.add(reason)
        await self._link.step("decided")
        return await self._completion.complete(changed)

    async def keep(self) -> int:
        """See ``Transactions.keep``. A failing transaction does not hold up the others."""
        if not self._lease.held:
            return 0
        now_ms = await self._link.now_ms()
        count = 0
        trouble: Exception | None = None
        await self._rows.date_again()
        for id_ in await self._rows.due(now_ms - _SETTLED_MS):
            try:
                await self._completion.complete(await self.current(id_))
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
            await self._completion.forget(lambda: self._lease.held)
            self._tidied_at = now
        if trouble is not None:
            raise trouble
        return count
