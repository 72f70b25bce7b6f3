"""The decision about a transaction: to commit, or to abort."""

from array import array
from contextlib import suppress

from oplogd.errors import OplogError, TransactionConflictError, TransactionNotFoundError
from oplogd.model.lease import stale_transaction
from oplogd.model.transaction import Reason
from oplogd.store.mongo.link.fences import holding
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.transactions.completion import Completion
from oplogd.store.mongo.transactions.row import TransactionRow, TxnPhase, decided
from oplogd.store.mongo.transactions.rows import TransactionRows
from oplogd.store.transactions import Decisions


class TransactionDecider:
    """Methods raise PyMongo's errors, and StoreUnavailableError.

    ``decisions`` counts those of this process.
    """

    def __init__(self, link: Link, rows: TransactionRows, completion: Completion) -> None:
        self._link = link
        self._rows = rows
        self._completion = completion
        self.decisions = Decisions()

    async def current(self, id_: int) -> TransactionRow:
        """Return a transaction. Abort it first if it is overdue.

        Raises TransactionNotFoundError.
        """
        row = await self._rows.find(id_)
        if row.is_overdue(await self._link.present()):
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
        """Abort open transactions of the terms of a lease before one; complete decided ones."""
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
        self.decisions.committed += 1
        await self._link.step("decided")
        return changed

    async def abort(self, row: TransactionRow, reason: Reason) -> TransactionRow:
        """Decide to abort an open transaction, and complete that.

        Return its row, which tells the decision.
        """
        id_ = row.transaction.id
        changed = await self._rows.abort(id_, reason)
        if changed is None:
            row = await self._rows.find(id_)
            if reason is Reason.TIMEOUT or not row.is_overdue(await self._link.present()):
                return row
            return await self.abort(row, Reason.TIMEOUT)
        self.decisions.add(reason)
        await self._link.step("decided")
        return await self._completion.complete(changed)


def conflict(row: TransactionRow) -> OplogError:
    """Return the error for a transaction that is in another state."""
    id_, reason, fence = row.transaction.id, row.transaction.reason, row.transaction.fence
    if reason is Reason.FENCE and fence is not None:
        return stale_transaction(id_, fence)
    if row.phase in (TxnPhase.COMMITTING, TxnPhase.COMMITTED):
        return TransactionConflictError(f"transaction {id_} has committed")
    if reason is Reason.CLIENT:
        return TransactionConflictError(f"transaction {id_} was {reason}")
    return TransactionConflictError(f"transaction {id_} {reason or 'is still open'}")
