"""The transactions of a database shared by several agents.

A decision is one compare-and-set in the row. Everything before it can be given up, everything
after it can be completed by any agent.

    begin: the row, then the begin record
    write: register the topics in the row while it is open, then append
    commit: count the records, judge the fence, claim the number, decide, complete
    commit_whole: one after the other. After an error of a step, abort
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from oplogd.errors import (
    OplogError,
    StaleFenceError,
    StoreUnavailableError,
    TransactionConflictError,
)
from oplogd.model.commit_log import begin_record
from oplogd.model.lease import stale
from oplogd.model.message import Message
from oplogd.model.transaction import Marker, Reason, Record, State, reused
from oplogd.store.mongo.interface import idle_groups
from oplogd.store.mongo.interface.guard import guarded
from oplogd.store.mongo.interface.topics import MongoTopics
from oplogd.store.mongo.link.fences import holding
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import BEGIN_NUMBER, number_of
from oplogd.store.mongo.reading.topic_log import Working
from oplogd.store.mongo.topics.groups import Group
from oplogd.store.mongo.transactions.appends import SharedAppender
from oplogd.store.mongo.transactions.claims import Claims
from oplogd.store.mongo.transactions.completion import Completion
from oplogd.store.mongo.transactions.decision import TransactionDecider
from oplogd.store.mongo.transactions.once import KeyRows
from oplogd.store.mongo.transactions.operations import OperationAppender
from oplogd.store.mongo.transactions.payloads import Payloads
from oplogd.store.mongo.transactions.records import CommittedRecords, entry_in, once
from oplogd.store.mongo.transactions.row import TransactionRow, TxnPhase
from oplogd.store.mongo.transactions.rows import TransactionRows
from oplogd.store.topics import EntryKind
from oplogd.store.transaction_rules import check_records, check_whole, refusal, too_large
from oplogd.store.transactions import (
    Commit,
    Decisions,
    NewTransaction,
    OpenStats,
    RecordLimits,
    Transaction,
)

# Of a whole transaction, while another one with its number is about to commit.
_ATTEMPTS = 5
_ATTEMPT_SECONDS = 0.1


class _AnotherHasTheNumberError(TransactionConflictError):
    """A begin with this number tells the other transaction's outcome."""


@guarded
class MongoTransactions:
    """See ``Transactions``. ``working`` guards each call. ``decider``: for the leases."""

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
        self._lease = lease
        self._topics = topics
        self._payloads = payloads
        self._working = working
        self._rows = TransactionRows(link)
        self._appender = SharedAppender(topics.appender)
        self._records = CommittedRecords(link, self._appender, payloads)
        keys = KeyRows(link)
        self._completion = Completion(link, self._rows, self._appender, payloads, operations, keys)
        self.decider = TransactionDecider(link, lease, self._rows, self._completion, topics.setup)
        self._claims = Claims(link, keys, self._rows, self._completion, self.decider)

    @property
    def decisions(self) -> Decisions:
        return self.decider.decisions

    @decisions.setter
    def decisions(self, decisions: Decisions) -> None:
        self.decider.decisions = decisions

    async def begin(self, new: NewTransaction) -> Transaction:
        if new.fence is not None:
            if not await holding(self._link, [new.fence]):
                raise StaleFenceError(stale(new.fence))
            await self._link.step("fence")
        if new.once is not None:
            committed = await self._claims.committed(new.once, new.owner)
            if committed is not None:
                return (await self._completion.complete(committed)).transaction
        row = await self._rows.insert(new)
        await self._link.step("begun-row")
        id_, log, group, *_ = row.transaction
        record: Message | Marker = begin_record(id_, row.transaction.expires_ms)
        if group is None:
            record = Marker(str(id_))
        entry = entry_in(log, EntryKind.BEGIN, record, once(id_, log, BEGIN_NUMBER))
        await self._appender.run([entry])
        await self._link.step("begin-record")
        if entry.last is not None:
            row = await self._rows.begun(id_, entry.last) or row
            if row.phase is not TxnPhase.OPEN:  # its time or its term was over meanwhile
                raise refusal(row.transaction)
        elif not entry.is_closed:
            await self._rows.remove(id_)
            raise await self._topics.catalogue.no_topic(log)
        return row.transaction

    async def write(self, id_: int, records: Sequence[Record], limits: RecordLimits) -> Transaction:
        row = await self.decider.fenced(await self.decider.current(id_))
        if row.phase is not TxnPhase.OPEN:
            raise refusal(row.transaction)
        check_records(row.transaction.only_log, records, limits)
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
        row = await self.decider.current(id_)
        if row.phase is TxnPhase.OPEN:
            row = await self._decide(row, records)
        once = row.transaction.once
        if once is not None and row.transaction.reason is Reason.ONCE:
            winner = await self._claims.winner(once, row.transaction.owner)
            if winner is not None:
                return (await self._completion.complete(winner)).commit
        is_decided = row.phase in (TxnPhase.COMMITTING, TxnPhase.COMMITTED)
        if not is_decided or row.transaction.records != records:
            raise refusal(row.transaction, records)
        return (await self._completion.complete(row)).commit

    async def commit_whole(
        self, new: NewTransaction, records: Sequence[Record], limits: RecordLimits
    ) -> Commit:
        check_whole(new, records, limits)
        for _ in range(_ATTEMPTS):
            try:
                return await self._commit_whole(new, records, limits)
            except _AnotherHasTheNumberError:
                await asyncio.sleep(_ATTEMPT_SECONDS)  # it is committed, or about to be
        return await self._commit_whole(new, records, limits)

    async def _commit_whole(
        self, new: NewTransaction, records: Sequence[Record], limits: RecordLimits
    ) -> Commit:
        begun = await self.begin(new)
        if begun.state is State.COMMITTED:
            return await self.commit(begun.id, begun.records)
        try:
            await self.write(begun.id, records, limits)
            return await self.commit(begun.id, len(records))
        except StoreUnavailableError:
            raise
        except OplogError as error:
            aborted = None
            with suppress(OplogError):  # it is aborted, or the keeper does it
                aborted = await self.abort(begun.id)
            if aborted is not None and aborted.reason is Reason.ONCE:
                raise _AnotherHasTheNumberError(str(error)) from None
            raise

    async def abort(self, id_: int) -> Transaction:
        row = await self.decider.current(id_)
        if row.phase is TxnPhase.OPEN:
            row = await self.decider.abort(row, Reason.CLIENT)
        if row.transaction.state is not State.ABORTED:
            raise refusal(row.transaction)
        return (await self._completion.complete(row)).transaction

    async def find(self, id_: int) -> Transaction:
        row = await self.decider.current(id_)
        return (await self._completion.complete(row)).transaction

    async def select(
        self,
        state: State | None,
        group: str | None,
        limit: int,
        before: int | None = None,
        owner: str | None = None,
    ) -> list[Transaction]:
        rows = await self._rows.select(state, group, limit, before, owner)
        return [row.transaction for row in rows]

    async def newest(self, key: str) -> Transaction:
        return (await self._claims.newest(key)).transaction

    async def keys(self, after: str, limit: int, owner: str | None = None) -> list[Transaction]:
        return await self._claims.keys(after, limit, owner)

    async def forget_key(self, key: str, owner: str | None = None) -> None:
        await self._claims.forget(key, owner)

    async def stats(self) -> OpenStats:
        return await self._rows.stats()

    async def keep(self) -> int:
        return await self.decider.keep()

    async def retire(self, is_followed: Callable[[int], bool]) -> int:
        return await idle_groups.retire(
            self._link, self._lease, self._rows, self._topics, is_followed
        )

    async def _decide(self, row: TransactionRow, records: int) -> TransactionRow:
        """Decide to commit an open transaction. Return its row, which tells the decision.

        Another agent may end the transaction meanwhile. Then its payloads seem to be missing, or
        its key has another owner by now.
        """
        try:
            return await self._judge(row, records)
        except TransactionConflictError:
            row = await self.decider.current(row.transaction.id)
            if row.phase is TxnPhase.OPEN:
                raise
            return row

    async def _judge(self, row: TransactionRow, records: int) -> TransactionRow:
        """Decide as ``_decide``. Raises TransactionConflictError if nothing is decided."""
        once = row.transaction.once
        if once is not None and await self._claims.is_lost(once, row.transaction.owner):
            return await self.decider.abort(row, Reason.ONCE)
        order = await self._records.order(row, records)
        row = await self.decider.fenced(row)
        await self._link.step("fence")
        if row.phase is not TxnPhase.OPEN:
            return row
        if once is not None and not await self._claims.claim(row.transaction, once):
            return await self.decider.abort(row, Reason.ONCE)
        return await self.decider.commit(row, order)

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
        reserved = await self._rows.reserve(id_, topics, todo, size, limits.bytes)
        if reserved is not None:
            return reserved
        row = await self.decider.current(id_)
        if row.phase is not TxnPhase.OPEN:
            raise refusal(row.transaction)
        raise too_large(limits)

    async def _check(self, id_: int, groups: Sequence[Group]) -> None:
        """Raise the error of the first group without an append."""
        for group in groups:
            if group.clash is not None and group.clash.once is not None:
                raise reused(number_of(group.clash.once.identity))
            if group.is_closed:
                raise refusal((await self.decider.current(id_)).transaction)
            if group.is_refused:
                raise await self._topics.catalogue.no_topic(group.log)
