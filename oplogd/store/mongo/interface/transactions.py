"""The transactions of a database that several agents share.

A decision is one compare-and-set in the row. Everything before it can be given up, everything
after it can be completed by any agent.

    begin: the row, then the begin record
    write: register the topics in the row while it is open, then append
    commit: count the records, judge the fence, decide, complete
"""

from collections.abc import Callable, Sequence

from oplogd.errors import (
    StaleFenceError,
    TopicError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.commit_log import begin_record
from oplogd.model.lease import stale
from oplogd.model.transaction import Marker, Reason, Record, State, encode_marker, reused
from oplogd.store.mongo.interface.idle_groups import IdleGroups
from oplogd.store.mongo.interface.topics import MongoTopics
from oplogd.store.mongo.link.fences import holding
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import BEGIN_NUMBER, number_of
from oplogd.store.mongo.reading.topic_log import Working
from oplogd.store.mongo.topics.groups import Group, new_entry
from oplogd.store.mongo.transactions.appends import SharedAppender
from oplogd.store.mongo.transactions.completion import Completion
from oplogd.store.mongo.transactions.decision import TransactionDecider, conflict
from oplogd.store.mongo.transactions.keeper import TransactionKeeper
from oplogd.store.mongo.transactions.operations import OperationAppender
from oplogd.store.mongo.transactions.payloads import Payloads
from oplogd.store.mongo.transactions.records import CommittedRecords, once
from oplogd.store.mongo.transactions.row import TransactionRow, TxnPhase
from oplogd.store.mongo.transactions.rows import TransactionRows
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import (
    Commit,
    Decisions,
    NewTransaction,
    OpenStats,
    RecordLimits,
    Transaction,
)


class MongoTransactions:
    """See ``Transactions``. ``working`` guards each call."""

    def __init__(
        self,
        link: Link,
        lease: FoldLease,
        topics: MongoTopics,
        payloads: Payloads,
        operations: OperationAppender,
        working: Working,
    ) -> None:
        self._link = link
        self._topics = topics
        self._payloads = payloads
        self._working = working
        self._rows = TransactionRows(link)
        self._appender = SharedAppender(topics.appender)
        self._records = CommittedRecords(link, self._appender, payloads)
        self._completion = Completion(link, self._rows, self._appender, payloads, operations)
        self._decider = TransactionDecider(link, self._rows, self._completion)
        self._idle_groups = IdleGroups(link, lease, self._rows, topics)
        self._keeper = TransactionKeeper(
            link,
            lease,
            self._rows,
            self._decider,
            self._completion,
            payloads,
            operations,
            topics.setup,
        )

    @property
    def decisions(self) -> Decisions:
        return self._decider.decisions

    async def begin(self, new: NewTransaction) -> Transaction:
        async with self._working():
            if new.fence is not None:
                if not await holding(self._link, [new.fence]):
                    raise StaleFenceError(stale(new.fence))
                await self._link.step("fence")
            row = await self._rows.insert(new)
            await self._link.step("begun-row")
            id_, log, group, *_ = row.transaction
            kind, data = EntryKind.MESSAGE, begin_record(id_, row.transaction.expires_ms).data
            if group is None:
                kind, data = EntryKind.BEGIN, encode_marker(Marker(str(id_))).encode()
            condition = once(id_, log, BEGIN_NUMBER)
            entry = Group(log, [new_entry(kind, data, once=condition)])
            await self._appender.run([entry])
            await self._link.step("begin-record")
            if entry.last is not None:
                row = await self._rows.begun(id_, entry.last) or row
            elif not entry.is_closed:
                await self._rows.remove(id_)
                raise await self._topics.catalogue.no_topic(log)
            return row.transaction

    async def write(self, id_: int, records: Sequence[Record], limits: RecordLimits) -> Transaction:
        async with self._working():
            row = await self._decider.fenced(await self._decider.current(id_))
            if row.phase is not TxnPhase.OPEN:
                raise conflict(row)
            only = row.transaction.only_log
            for record in records:
                if record.lsn >= limits.records:
                    raise TransactionTooLargeError(
                        f"a transaction has at most {limits.records:,} records, so lsn"
                        f" {record.lsn} is too large"
                    )
                if only is not None and record.log != only:
                    raise TopicError("topic", f"transaction {id_} is for one other topic")
            if not (todo := await self._records.missing(row, records)):
                return row.transaction
            self._topics.bounds.require_room(*{each.log for each in todo if each.log})
            row = await self._reserve(row, todo, limits)
            await self._link.step("registered")
            groups = await self._records.append(id_, [each for each in todo if each.log])
            await self._check(id_, groups)
            await self._link.step("appended")
            if operations := [each for each in todo if not each.log]:
                await self._payloads.write(id_, operations)
            await self._link.step("written")
            if repeated := [entry for group in groups for entry in group.repeated]:
                size = sum(len(entry.data) for entry in repeated)
                row = await self._rows.release(id_, len(repeated), size) or row
            return row.transaction

    async def commit(self, id_: int, records: int) -> Commit:
        async with self._working():
            row = await self._decider.current(id_)
            if row.phase is TxnPhase.OPEN:
                row = await self._decide(row, records)
            if row.phase not in (TxnPhase.COMMITTING, TxnPhase.COMMITTED):
                raise conflict(row)
            if row.transaction.records != records:
                raise TransactionConflictError(
                    f"transaction {id_} has committed with {row.transaction.records:,} records"
                )
            return (await self._completion.complete(row)).commit

    async def abort(self, id_: int) -> Transaction:
        async with self._working():
            row = await self._decider.current(id_)
            if row.phase is TxnPhase.OPEN:
                row = await self._decider.abort(row, Reason.CLIENT)
            if row.phase not in (TxnPhase.ABORTING, TxnPhase.ABORTED):
                raise conflict(row)
            return (await self._completion.complete(row)).transaction

    async def find(self, id_: int) -> Transaction:
        async with self._working():
            row = await self._decider.current(id_)
            return (await self._completion.complete(row)).transaction

    async def select(
        self, state: State | None, group: str | None, limit: int, before: int | None = None
    ) -> list[Transaction]:
        async with self._working():
            rows = await self._rows.select(state, group, limit, before)
            return [row.transaction for row in rows]

    async def stats(self) -> OpenStats:
        async with self._working():
            return await self._rows.stats()

    async def keep(self) -> int:
        async with self._working():
            return await self._keeper.keep()

    async def end_terms(self, lease: str, before: int) -> None:
        """Let nothing of the terms of a lease before one commit from now on.

        Call it after a majority has shown that this term, or a later one, has begun. What was
        decided before is complete afterwards. Raises PyMongo's errors, and StoreUnavailableError.
        """
        await self._decider.end_terms(lease, before)

    async def retire(self, is_followed: Callable[[int], bool]) -> int:
        async with self._working():
            return await self._idle_groups.retire(is_followed)

    async def _decide(self, row: TransactionRow, records: int) -> TransactionRow:
        """Decide to commit an open transaction. Return its row, which tells the decision.

        Whoever ends a transaction meanwhile removes its payloads, so that they seem to be missing.
        """
        try:
            order = await self._records.order(row, records)
        except TransactionConflictError:
            row = await self._decider.current(row.transaction.id)
            if row.phase is TxnPhase.OPEN:
                raise
            return row
        row = await self._decider.fenced(row)
        await self._link.step("fence")
        return await self._decider.commit(row, order) if row.phase is TxnPhase.OPEN else row

    async def _reserve(
        self, row: TransactionRow, todo: Sequence[Record], limits: RecordLimits
    ) -> TransactionRow:
        """Register the logs of records in the row, and count them, while it is open."""
        id_ = row.transaction.id
        topics = sorted({each.log for each in todo if each.log} - set(row.topics))
        if topics:
            current = await self._topics.catalogue.current(topics)
            for log in topics:
                if log not in current:
                    raise await self._topics.catalogue.no_topic(log)
        size = sum(len(each.content.data) for each in todo)
        has_operations = any(not each.log for each in todo)
        reserved = await self._rows.reserve(
            id_,
            topics,
            len(todo),
            size,
            limits.bytes,
            high=max(each.lsn for each in todo),
            has_operations=has_operations,
        )
        if reserved is not None:
            return reserved
        row = await self._decider.current(id_)
        if row.phase is not TxnPhase.OPEN:
            raise conflict(row)
        raise TransactionTooLargeError(
            f"a transaction has at most {limits.bytes:,} bytes; this one would have"
            f" {row.transaction.bytes + size:,}"
        )

    async def _check(self, id_: int, groups: Sequence[Group]) -> None:
        """Raise the error of the first group that was not appended."""
        for group in groups:
            if group.clash is not None and group.clash.once is not None:
                raise reused(number_of(group.clash.once.identity))
            if group.is_closed:
                raise conflict(await self._decider.current(id_))
            if group.is_refused:
                raise await self._topics.catalogue.no_topic(group.log)
