"""Transactions in memory: the model of every store's, and their stand-in for other tests."""

import random
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from oplogd.errors import (
    StaleFenceError,
    StoreUnavailableError,
    TopicError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.lease import stale, stale_transaction
from oplogd.model.message import Message
from oplogd.model.once import no_key, number_over, require_own
from oplogd.model.operation import Operation, format_ms
from oplogd.model.transaction import (
    FIRST_ID,
    Marker,
    Reason,
    Record,
    State,
    encode_marker,
    is_group_log,
    lacking,
    no_transaction,
    reused,
)
from oplogd.store.base import Entry
from oplogd.store.topics import EntryKind, TopicEntry
from oplogd.store.transaction_rules import check_whole, too_large
from oplogd.store.transactions import (
    IDLE_MS,
    OPLOG_INDEX,
    RETENTION_MS,
    Commit,
    CommittedLog,
    Decisions,
    NewTransaction,
    OpenStats,
    OperationRun,
    RecordLimits,
    Transaction,
)
from tests.kits.topics.memory import MemoryTopics, mark
from tests.kits.topics.messages import of_json


@dataclass
class _Row:
    """A transaction. ``ended_ms``: time of the decision."""

    now: Transaction
    records: dict[int, Record] = field(default_factory=dict)
    committed: Commit | None = None
    ended_ms: int = 0


class MemoryTransactions:
    """Implements ``oplogd.store.transactions.Transactions`` beside topics in memory.

    ``operations``: the entries of the oplog. ``trouble``: if set, every method raises it.
    """

    def __init__(self, topics: MemoryTopics, operations: list[Entry] | None = None) -> None:
        self.topics = topics
        self.operations: list[Entry] = [] if operations is None else operations
        self.trouble: StoreUnavailableError | None = None
        self._rows: dict[int, _Row] = {}
        self._newest: dict[str, _Row] = {}
        self.decisions = Decisions()

    def another(self) -> "MemoryTransactions":
        """Return another handle on the same transactions, as another agent would have."""
        handle = MemoryTransactions(self.topics, self.operations)
        handle._rows, handle._newest = self._rows, self._newest
        return handle

    async def begin(self, new: NewTransaction) -> Transaction:
        self._work()
        if new.fence is not None and not self.topics.leases.holds(new.fence):
            raise StaleFenceError(stale(new.fence))
        if new.once is not None and new.once.key in self._newest:
            newest = self._newest[new.once.key].now
            require_own(new.once.key, new.owner, newest.owner)
            assert newest.once is not None
            if newest.once.number > new.once.number:
                raise number_over(new.once, newest.once.number)
            if newest.once == new.once:
                return newest
        now = self.topics.clock()
        id_ = FIRST_ID + (now << 20) + random.getrandbits(20)
        while id_ in self._rows:
            id_ += 1
        expires = now + new.timeout_ms
        if new.group is None:
            (entry,) = self._mark(new.log, EntryKind.BEGIN, Marker(str(id_)))
        else:
            event = {"event": "begin", "txn": str(id_), "expires_at": format_ms(expires)}
            (entry,) = self._tell(new.log, event)
        transaction = Transaction(
            id=id_,
            log=new.log,
            group=new.group,
            only_log=new.only_log,
            state=State.OPEN,
            reason=None,
            begun_ms=now,
            expires_ms=expires,
            logs=(),
            records=0,
            bytes=0,
            begin=mark(entry),
            commit=None,
            fence=new.fence,
            once=new.once,
            owner=new.owner,
        )
        self._rows[id_] = _Row(transaction)
        return transaction

    async def write(self, id_: int, records: Sequence[Record], limits: RecordLimits) -> Transaction:
        row = self._open_row(id_)
        new: dict[int, Record] = {}
        for record in records:
            known = row.records.get(record.lsn) or new.get(record.lsn)
            if known is None:
                new[record.lsn] = record
            elif known.digest != record.digest:
                raise reused(record.lsn)
        octets = row.now.bytes + sum(len(each.content.data) for each in new.values())
        for record in new.values():
            if row.now.only_log not in (None, record.log):
                raise TopicError("topic", f"is not the topic of transaction {id_}")
            if record.log:
                self.topics.generation(record.log)
            if record.lsn >= limits.records:
                raise TransactionTooLargeError(f"more than {limits.records:,} records")
        if octets > limits.bytes:
            raise too_large(limits)
        for record in new.values():
            if isinstance(record.content, Message):
                (entry,) = self.topics.place(record.log, EntryKind.DEFERRED, [record.content])
                self.topics.records.setdefault((record.log, str(id_)), {})[record.lsn] = entry
        row.records |= new
        row.now = row.now._replace(
            logs=tuple(sorted({record.log for record in row.records.values()})),
            records=len(row.records),
            bytes=octets,
        )
        return row.now

    async def commit(self, id_: int, records: int) -> Commit:
        row = self._row(id_)
        if row.committed is not None and row.now.records == records:
            return row.committed
        once = row.now.once
        rival = None if once is None else self._newest.get(once.key)
        if rival is not None and once is not None and rival.now.once and rival is not row:
            if row.now.state is State.OPEN or row.now.reason is Reason.ONCE:
                require_own(once.key, row.now.owner, rival.now.owner)
            is_lost = rival.now.once.number >= once.number
            if row.now.state is State.OPEN and is_lost:
                self._abort(row, Reason.ONCE)
            if row.now.reason is Reason.ONCE and rival.now.once == once:
                assert rival.committed is not None
                return rival.committed
        row = self._open_row(id_)
        if missing := [lsn for lsn in range(records) if lsn not in row.records]:
            raise lacking(id_, len(missing), records, missing[0])
        kept = [row.records[lsn] for lsn in range(records)]
        if row.now.group is None:
            commit = None
        else:
            event = {"event": "commit", "txn": str(id_), "records": records}
            (entry,) = self._tell(row.now.log, event)
            commit = mark(entry)
        logs = []
        for log in self._marked_logs(row.now):
            lsns = [record.lsn for record in kept if record.log == log]
            last = max(lsns, default=-1)
            try:
                (entry,) = self._mark(log, EntryKind.COMMIT, Marker(str(id_), len(lsns), last))
            except TopicNotFoundError:
                logs.append(CommittedLog(log, None, last))
                continue
            logs.append(CommittedLog(log, mark(entry), last))
            if row.now.group is None and log == row.now.log:
                commit = mark(entry)
        row.now = row.now._replace(state=State.COMMITTED, records=records, commit=commit)
        index = {each.log: number for number, each in enumerate(logs)} | {0: OPLOG_INDEX}
        order = array("I", [index[record.log] for record in kept])
        runs = self._append([record for record in kept if record.log == 0], id_)
        row.committed = Commit(row.now, tuple(logs), runs, order)
        row.ended_ms = self.topics.clock()
        if once is not None:
            if once.key in self._newest:
                self._newest[once.key].ended_ms = self.topics.clock()
            self._newest[once.key] = row
        self.decisions.committed += 1
        return row.committed

    async def commit_whole(
        self, new: NewTransaction, records: Sequence[Record], limits: RecordLimits
    ) -> Commit:
        self._work()
        check_whole(new, records, limits)
        for record in records:
            if record.log:
                self.topics.generation(record.log)
        begun = await self.begin(new)
        if begun.state is State.COMMITTED:
            return await self.commit(begun.id, begun.records)
        await self.write(begun.id, records, limits)
        return await self.commit(begun.id, len(records))

    async def abort(self, id_: int) -> Transaction:
        row = self._row(id_)
        if row.now.state == State.OPEN:
            self._abort(row, Reason.CLIENT)
        elif row.now.state != State.ABORTED:
            self._open_row(id_)
        return row.now

    async def find(self, id_: int) -> Transaction:
        return self._row(id_).now

    async def select(
        self,
        state: State | None,
        group: str | None,
        limit: int,
        before: int | None = None,
        owner: str | None = None,
    ) -> list[Transaction]:
        self._work()
        found = [
            row.now
            for row in self._rows.values()
            if state in (None, row.now.state)
            and group in (None, row.now.group)
            and owner in (None, row.now.owner)
            and (before is None or row.now.id < before)
        ]
        return sorted(found, key=lambda each: each.id, reverse=True)[:limit]

    async def newest(self, key: str) -> Transaction:
        self._work()
        if key not in self._newest:
            raise no_key(key)
        return self._newest[key].now

    async def keys(self, after: str, limit: int, owner: str | None = None) -> list[Transaction]:
        self._work()
        found = [self._newest[key].now for key in sorted(self._newest) if key > after]
        return [each for each in found if owner in (None, each.owner)][:limit]

    async def forget_key(self, key: str, owner: str | None = None) -> None:
        newest = await self.newest(key)
        if owner not in (None, newest.owner):
            raise no_key(key)
        self._newest.pop(key).ended_ms = self.topics.clock()

    async def keep(self) -> int:
        self._work()
        overdue = [row for row in self._rows.values() if self._is_overdue(row)]
        for row in overdue:
            self._abort(row, Reason.TIMEOUT)
        oldest = self.topics.clock() - RETENTION_MS
        for id_, row in [*self._rows.items()]:
            is_old = row.now.state != State.OPEN and row.ended_ms < oldest
            if is_old and row not in self._newest.values():
                del self._rows[id_]
        return len(overdue)

    async def retire(self, is_followed: Callable[[int], bool]) -> int:
        self._work()
        topics, count = self.topics, 0
        busy = {row.now.log for row in self._rows.values() if row.now.state is State.OPEN}
        for topic in await topics.in_namespace("system"):
            idle = max(IDLE_MS, 1000 * (topic.ttl or await topics.default_ttl()))
            head = topics.generation(topic.log).head
            is_old = is_group_log(topic.name) and head.ms < topics.clock() - idle
            if is_old and topic.log not in busy and not is_followed(topic.log):
                await topics.delete(topic.name)
                count += 1
        return count

    async def stats(self) -> OpenStats:
        self._work()
        begun = [row.now.begun_ms for row in self._rows.values() if row.now.state == State.OPEN]
        return OpenStats(len(begun), min(begun, default=0))

    def _row(self, id_: int) -> _Row:
        """Return a row; abort it first if it is overdue."""
        self._work()
        if id_ not in self._rows:
            raise no_transaction(id_)
        row = self._rows[id_]
        if self._is_overdue(row):
            self._abort(row, Reason.TIMEOUT)
        return row

    def _open_row(self, id_: int) -> _Row:
        row = self._row(id_)
        fence = row.now.fence
        if row.now.state == State.OPEN:
            if fence is None or self.topics.leases.holds(fence):
                return row
            self._abort(row, Reason.FENCE)
        if fence is not None and row.now.reason is Reason.FENCE:
            raise stale_transaction(id_, fence)
        ends = {
            Reason.CLIENT: "was aborted by the client",
            Reason.TIMEOUT: "timed out",
            Reason.ONCE: "was aborted because another transaction has its number",
        }
        end = ends[row.now.reason] if row.now.reason else "has committed"
        raise TransactionConflictError(f"transaction {id_} {end}")

    def _is_overdue(self, row: _Row) -> bool:
        return row.now.state == State.OPEN and row.now.expires_ms < self.topics.clock()

    def _abort(self, row: _Row, reason: Reason) -> None:
        id_ = row.now.id
        row.now = row.now._replace(state=State.ABORTED, reason=reason)
        row.ended_ms = self.topics.clock()
        if row.now.group is not None:
            self._tell(row.now.log, {"event": "abort", "txn": str(id_), "reason": reason})
        for log in self._marked_logs(row.now):
            with suppress(TopicNotFoundError):
                self._mark(log, EntryKind.ABORT, Marker(str(id_)))
        if reason == Reason.TIMEOUT:
            self.decisions.timed_out += 1
        else:
            self.decisions.aborted += 1

    def _marked_logs(self, transaction: Transaction) -> list[int]:
        """Return the topics' logs that get an entry for the decision."""
        logs = set(transaction.logs) - {0}
        return sorted(logs | {transaction.log} if transaction.group is None else logs)

    def _append(self, records: Sequence[Record], id_: int) -> tuple[OperationRun, ...]:
        """Append operations to the oplog, with their place in the transaction."""
        if not records:
            return ()
        last = self.operations[-1] if self.operations else Entry(0, 0, "", "")
        ms = max(self.topics.clock(), last.ms)
        for k, record in enumerate(records, 1):
            assert isinstance(record.content, Operation)
            place = f',"txn":"{id_}","lsn":{record.lsn},"of":{len(records)}}}'
            data = record.content.data.decode()[:-1] + place
            self.operations.append(Entry(last.offset + k, ms, record.content.event, data))
        return (OperationRun(last.offset + 1, len(records), ms),)

    def _mark(self, log: int, event: EntryKind, marker: Marker) -> list[TopicEntry]:
        return self.topics.place(log, event, [Message(encode_marker(marker).encode())])

    def _tell(self, log: int, event: Mapping[str, object]) -> list[TopicEntry]:
        """Append a record to the commit log of a group."""
        payload = msgspec.json.encode(event).decode()
        message = of_json({"payload": payload, "key": event["txn"]})
        return self.topics.place(log, EntryKind.MESSAGE, [message])

    def _work(self) -> None:
        if self.trouble is not None:
            raise self.trouble
