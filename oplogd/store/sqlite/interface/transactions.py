"""The transactions in the embedded store: see ``Transactions``."""

from collections.abc import Callable, Sequence
from functools import partial

from oplogd.clock.guard import GuardedClock
from oplogd.model.transaction import Record, State
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.connection import Pools
from oplogd.store.sqlite.file.shared_write import SharedWrite
from oplogd.store.sqlite.transactions import commit as transaction_commit
from oplogd.store.sqlite.transactions import idle_groups, rows
from oplogd.store.sqlite.transactions import statements as sql
from oplogd.store.sqlite.transactions import steps as transaction_steps
from oplogd.store.transactions import (
    KEPT_MS,
    Commit,
    Decisions,
    NewTransaction,
    OpenStats,
    RecordLimits,
    Transaction,
)

# Rows that one step of the keeper looks at.
STEP_ROWS = 500


class SqliteTransactions:
    """Uses the pools of its store.

    ``wake``: called in the writer's thread after a step; it may have appended to any logs.
    """

    def __init__(self, pools: Pools, wake: Callable[[], None], clock: GuardedClock) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms
        self._wake = wake
        self._shared = SharedWrite(pools.writer, wake, Decisions)
        self._writer, self._readers, self._lookups = pools

    @property
    def decisions(self) -> Decisions:
        return self._shared.decisions

    async def begin(self, new: NewTransaction) -> Transaction:
        return await self._shared.run(
            lambda db, _: transaction_steps.begin(db, new, self._now_ms())
        )

    async def write(self, id_: int, records: Sequence[Record], limits: RecordLimits) -> Transaction:
        return await self._shared.run(
            lambda db, decisions: transaction_steps.write(
                db, id_, records, limits, self._clock.present(), decisions
            )
        )

    async def commit(self, id_: int, records: int) -> Commit:
        return await self._shared.run(
            lambda db, decisions: transaction_commit.commit(
                db, id_, records, self._clock.present(), decisions
            )
        )

    async def abort(self, id_: int) -> Transaction:
        return await self._shared.run(
            lambda db, decisions: transaction_steps.abort(db, id_, self._clock.present(), decisions)
        )

    async def find(self, id_: int) -> Transaction:
        found = await self._lookups.run(lambda db: rows.find(db, id_))
        if not transaction_steps.is_overdue(found, self._clock.present()):
            return found
        return await self._shared.run(
            lambda db, decisions: transaction_steps.find_current(
                db, id_, self._clock.present(), decisions
            )
        )

    async def select(
        self, state: State | None, group: str | None, limit: int, before: int | None = None
    ) -> list[Transaction]:
        return await self._readers.run(lambda db: rows.select(db, state, group, limit, before))

    async def keep(self) -> int:
        """Do ``Transactions.keep``: each step is a call of the writer."""
        present, old = self._clock.present(), self._clock.before_ms(KEPT_MS)
        given = age_statements.ends(present)
        given |= {"old": old, "ahead": present.known_to, "limit": STEP_ROWS}
        if not await self._lookups.run(lambda db: db.execute(sql.WORK, given).fetchone()[0]):
            return 0
        aborted = self.decisions.timed_out
        await self._writer.run(lambda db: db.execute(sql.DATE_AGAIN, given | {"now": present.ms}))
        for (id_,) in await self._lookups.run(lambda db: db.execute(sql.OVERDUE, given).fetchall()):
            await self.find(id_)
        while await self._writer.run(lambda db: db.execute(sql.FORGET, given).rowcount):
            pass
        return self.decisions.timed_out - aborted

    async def retire(self, is_followed: Callable[[int], bool]) -> int:
        """Do ``Transactions.retire``: each step is a call of the writer."""
        count, now = 0, self._clock.removal()
        found = await self._readers.run(lambda db: idle_groups.find(db, now))
        for first in range(0, len(found), idle_groups.STEP):
            some = [log for log in found[first : first + idle_groups.STEP] if not is_followed(log)]
            count += await self._writer.run(partial(idle_groups.delete, logs=some, now=now))
        if count:
            self._wake()
        return count

    async def stats(self) -> OpenStats:
        return await self._lookups.run(rows.stats)
