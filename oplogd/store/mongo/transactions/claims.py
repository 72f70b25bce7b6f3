"""The claims of transactions to their numbers: see ``once``."""

import time

from oplogd.errors import (
    TooManyKeysError,
    TransactionConflictError,
    TransactionNotFoundError,
)
from oplogd.model.once import (
    MAX_KEYS,
    OnceNumber,
    no_key,
    number_forgotten,
    number_over,
    require_own,
    too_many_keys,
)
from oplogd.model.transaction import Reason
from oplogd.store.mongo.link.contention import pause
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.transactions.completion import Completion
from oplogd.store.mongo.transactions.decision import TransactionDecider
from oplogd.store.mongo.transactions.once import Claim, KeyRow, KeyRows
from oplogd.store.mongo.transactions.row import TransactionRow, TxnPhase
from oplogd.store.mongo.transactions.rows import TransactionRows
from oplogd.store.transactions import Transaction

# Keys read at a time to find those of an owner.
_OWNED_STEP = 1_000


class Claims:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(
        self,
        link: Link,
        keys: KeyRows,
        rows: TransactionRows,
        completion: Completion,
        decider: TransactionDecider,
    ) -> None:
        self._link = link
        self._keys = keys
        self._rows = rows
        self._completion = completion
        self._decider = decider

    async def committed(self, once: OnceNumber, owner: str | None) -> TransactionRow | None:
        """Return the transaction committed with a number, None if one may begin with it.

        Raises TransactionConflictError if the key has another owner or a larger number has
        committed, and TooManyKeysError.
        """
        row = await self._own(once.key, owner)
        if row is None:
            if await self._keys.count() >= MAX_KEYS:
                raise TooManyKeysError(too_many_keys())
            return None
        if row.newest.number > once.number:
            raise number_over(once, row.newest.number)
        return await self._of(row, once) if row.newest.number == once.number else None

    async def winner(self, once: OnceNumber, owner: str | None) -> TransactionRow | None:
        """Return the transaction committed with a number if no larger one has committed.

        Raises TransactionConflictError if the key has another owner.
        """
        row = await self._own(once.key, owner)
        if row is None or row.newest.number != once.number:
            return None
        return await self._of(row, once)

    async def is_lost(self, once: OnceNumber, owner: str | None) -> bool:
        """Return whether a number, or a larger one, has committed.

        Raises TransactionConflictError if the key has another owner.
        """
        row = await self._own(once.key, owner)
        return row is not None and row.newest.number >= once.number

    async def claim(self, transaction: Transaction, once: OnceNumber) -> bool:
        """Claim the number of a transaction. Return False if it, or a larger one, has committed.

        Another transaction that has the claim is ended first. Raises TransactionConflictError if
        the key, or an open transaction with the claim, has another owner.
        """
        owner = transaction.owner
        began = time.monotonic()
        claim = Claim(once.number, transaction.id)
        while True:
            row = await self._own(once.key, owner)
            if row is not None and row.newest.number >= once.number:
                return row.newest.txn == transaction.id
            if row is not None and row.claim == claim:
                return True
            if row is None or await self._is_free(row, owner):
                await self._link.step("claiming")
                if await self._keys.claim(once.key, row, claim):
                    await self._link.step("claimed")
                    return True
            await pause(self._link, f"the key {once.key}", began)

    async def newest(self, key: str) -> TransactionRow:
        """Return the newest committed transaction of a key. Raises OnceKeyNotFoundError."""
        row = await self._settled(key)
        if row is None or not row.newest.txn:
            raise no_key(key)
        return await self._of(row, OnceNumber(key, row.newest.number))

    async def keys(self, after: str, limit: int, owner: str | None) -> list[Transaction]:
        """Return the newest committed transaction of each key past one, sorted by key.

        ``owner``: see ``Transactions.keys``.
        """
        found: list[Transaction] = []
        step = limit if owner is None else max(limit, _OWNED_STEP)
        while len(found) < limit:
            rows = await self._keys.select(after, step)
            ids = [each.newest.txn for each in rows if each.newest.txn]
            known = await self._rows.of_ids(ids, owner)
            found += [known[id_].transaction for id_ in ids if id_ in known]
            if len(rows) < step:
                break
            after = rows[-1].key
        return found[:limit]

    async def forget(self, key: str, owner: str | None) -> None:
        """Forget a key: see ``Transactions.forget_key``."""
        began = time.monotonic()
        while True:
            row = await self._settled(key)
            if row is None or (owner is not None and not await self._is_of(row, owner)):
                raise no_key(key)
            claimed = await self._claimed(row)
            if claimed is not None and claimed.phase is TxnPhase.OPEN:
                raise TransactionConflictError(
                    f"transaction {claimed.transaction.id} is about to commit with the key {key}"
                )
            if await self._keys.clear(row):
                break
            await pause(self._link, f"the key {key}", began)
        # Cut here, the rest is left to the next commit of the key.
        await self._link.step("cleared")
        row = row._replace(newest=Claim(-1, 0), previous=row.newest.txn or row.previous, claim=None)
        if row.previous:
            await self._rows.let_go(row.previous)
        await self._keys.delete(row)

    async def _settled(self, key: str) -> KeyRow | None:
        """Return the row of a key after a decided transaction with the claim was completed."""
        began = time.monotonic()
        while True:
            row = await self._keys.find(key)
            if row is None:
                return None
            # The row of a newest one that is not finished would be kept for ever.
            id_ = row.newest.txn if row.claim is None else row.claim.txn
            other = await self._found(id_) if id_ else None
            if other is None or other.phase not in (TxnPhase.COMMITTING, TxnPhase.COMMITTED):
                return row
            if other.phase is TxnPhase.COMMITTED and row.claim is None:
                return row
            await self._completion.complete(other)
            if other.phase is TxnPhase.COMMITTED and await self._completion.settle(other):
                # Maybe an agent of a version before keys has completed it.
                await self._rows.hold(id_)
                again = await self._keys.find(key)
                if again is None or again.newest.txn != id_:
                    await self._rows.let_go(id_)
            elif row.claim is None:
                return row
            began = time.monotonic()  # a large commit takes its time
            await pause(self._link, f"the key {key}", began)

    async def _is_free(self, row: KeyRow, owner: str | None) -> bool:
        """Return whether no open transaction has the claim. Abort the one that has.

        Raises TransactionConflictError if that one has another owner.
        """
        other = await self._claimed(row)
        if other is not None and other.phase is TxnPhase.OPEN:
            require_own(row.key, owner, other.transaction.owner)
            other = await self._decider.abort(other, Reason.ONCE)
        return other is None or other.phase in (TxnPhase.ABORTING, TxnPhase.ABORTED)

    async def _claimed(self, row: KeyRow) -> TransactionRow | None:
        """Return the transaction with the claim. An overdue one is aborted first."""
        if row.claim is None:
            return None
        try:
            return await self._decider.current(row.claim.txn)
        except TransactionNotFoundError:
            return None

    async def _own(self, key: str, owner: str | None) -> KeyRow | None:
        """Return as ``_settled`` the row of a key that this owner may commit with.

        Raises TransactionConflictError if the key has another owner, or an unknown one.
        """
        row = await self._settled(key)
        if owner is not None and row is not None and row.newest.txn:
            found = await self._found(row.newest.txn)
            require_own(key, owner, found and found.transaction.owner)
        return row

    async def _is_of(self, row: KeyRow, owner: str) -> bool:
        """Return whether the newest transaction of a key has this owner."""
        found = await self._found(row.newest.txn) if row.newest.txn else None
        return found is not None and found.transaction.owner == owner

    async def _of(self, row: KeyRow, once: OnceNumber) -> TransactionRow:
        found = await self._found(row.newest.txn)
        if found is None:
            raise number_forgotten(once, row.newest.txn)
        return found

    async def _found(self, id_: int) -> TransactionRow | None:
        try:
            return await self._rows.find(id_)
        except TransactionNotFoundError:
            return None
