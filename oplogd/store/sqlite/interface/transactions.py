"""The transactions in the embedded store: see ``Transactions``."""

from collections.abc import Callable, Sequence
from functools import partial

from oplogd.model.once import no_key
from oplogd.model.transaction import Record, State
from oplogd.store.sqlite.file.shared_write import SharedWriter, Together
from oplogd.store.sqlite.transactions import once, rows, steps, whole
from oplogd.store.sqlite.transactions import statements as sql
from oplogd.store.transaction_rules import check_whole
from oplogd.store.transactions import (
    RETENTION_MS,
    Commit,
    NewTransaction,
    OpenStats,
    RecordLimits,
    Transaction,
)

# Rows of one step of the keeper.
STEP_ROWS = 500

# Logs deleted in one transaction: a few ms.
_STEP_LOGS = 200


class SqliteTransactions(SharedWriter):
    async def begin(self, new: NewTransaction) -> Transaction:
        return await self._run(lambda step: steps.begin(step, new))

    async def write(self, id_: int, records: Sequence[Record], limits: RecordLimits) -> Transaction:
        return await self._run(lambda step: steps.write(step, id_, records, limits))

    async def commit(self, id_: int, records: int) -> Commit:
        return await self._run(lambda step: steps.commit(step, id_, records))

    async def commit_whole(
        self, new: NewTransaction, records: Sequence[Record], limits: RecordLimits
    ) -> Commit:
        check_whole(new, records, limits)
        item = whole.Whole(new, records, limits)
        together = Together(whole.commit_together, item, item.size()) if item.may_share() else None
        return await self._run(lambda step: whole.commit(step, item), together)

    async def abort(self, id_: int) -> Transaction:
        return await self._run(lambda step: steps.abort(step, id_))

    async def find(self, id_: int) -> Transaction:
        found = await self._lookups.run(lambda db: rows.find(db, id_))
        if not found.is_overdue(self._clock.present()):
            return found
        return await self._run(lambda step: steps.find_current(step, id_))

    async def select(
        self,
        state: State | None,
        group: str | None,
        limit: int,
        before: int | None = None,
        owner: str | None = None,
    ) -> list[Transaction]:
        return await self._readers.run(
            lambda db: rows.select(db, state, group, limit, before, owner)
        )

    async def newest(self, key: str) -> Transaction:
        found = await self._lookups.run(lambda db: rows.newest(db, key))
        if found is None:
            raise no_key(key)
        return found

    async def keys(self, after: str, limit: int, owner: str | None = None) -> list[Transaction]:
        return await self._readers.run(lambda db: rows.keys(db, after, limit, owner))

    async def forget_key(self, key: str, owner: str | None = None) -> None:
        await self._run(lambda step: once.forget_key(step, key, owner))

    async def keep(self) -> int:
        """Do ``Transactions.keep``: each step is a call of the writer."""
        old = self._clock.before_ms(RETENTION_MS)
        given = await self._due(sql.WORK, sql.DATE_AGAIN, STEP_ROWS, old=old)
        if given is None:
            return 0
        aborted = self.decisions.timed_out
        for (id_,) in await self._lookups.run(lambda db: db.execute(sql.OVERDUE, given).fetchall()):
            await self.find(id_)
        while await self._writer.run(lambda db: db.execute(sql.FORGET, given).rowcount):
            pass
        return self.decisions.timed_out - aborted

    async def retire(self, is_followed: Callable[[int], bool]) -> int:
        """Do ``Transactions.retire``: each step is a call of the writer."""
        count, now = 0, self._clock.removal()
        found = await self._readers.run(lambda db: rows.idle_logs(db, now))
        for first in range(0, len(found), _STEP_LOGS):
            some = [log for log in found[first : first + _STEP_LOGS] if not is_followed(log)]
            count += await self._writer.run(partial(rows.delete_idle, logs=some, now=now))
        if count:
            self._wake()
        return count

    async def stats(self) -> OpenStats:
        return await self._lookups.run(rows.stats)
