"""Whole transactions: begun, written and committed in one step, several of them by one statement.

A step has no effect if it raises an OplogError.
"""

import sqlite3
from array import array
from collections.abc import Collection, Iterable, Sequence
from random import getrandbits
from typing import NamedTuple

import msgspec

from oplogd.errors import OplogError, StaleFenceError
from oplogd.model import commit_log
from oplogd.model.event_id import Mark
from oplogd.model.lease import stale
from oplogd.model.message import Message
from oplogd.model.message_id import stamp, unstamp
from oplogd.model.names import no_topic
from oplogd.model.operation import Operation
from oplogd.model.pointer import Decision
from oplogd.model.transaction import FIRST_ID, Marker, Record, State, encode_marker
from oplogd.store.sqlite import leases as lease_rows
from oplogd.store.sqlite.file import statements
from oplogd.store.sqlite.file.parts import STATEMENT_BYTES, STATEMENT_OPERATIONS, as_json, insert
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.log import log as oplog
from oplogd.store.sqlite.topics.statements import MAX_LEAD, base
from oplogd.store.sqlite.transactions import once, rows, steps
from oplogd.store.sqlite.transactions import statements as sql
from oplogd.store.sqlite.upkeep import room
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import (
    OPLOG_INDEX,
    Commit,
    CommittedLog,
    NewTransaction,
    OperationRun,
    RecordLimits,
    Transaction,
)

# A larger transaction takes statements of its own.
_SHARED_BYTES = 16 * 1024
_SHARED_RECORDS = 64


class Whole(NamedTuple):
    """``records``: with lsn 0 to their number - 1, in any order."""

    new: NewTransaction
    records: Sequence[Record]
    limits: RecordLimits

    def may_share(self) -> bool:
        """Return whether its statements may be those of others, too."""
        has_condition = self.new.fence is not None or self.new.once is not None
        return not has_condition and self._is_within(_SHARED_RECORDS, _SHARED_BYTES)

    def size(self) -> int:
        """Return its size among those that share statements: records, begin and commit."""
        return len(self.records) + 2

    def is_large(self) -> bool:
        return not self._is_within(STATEMENT_OPERATIONS, STATEMENT_BYTES)

    def _is_within(self, most_records: int, most_bytes: int) -> bool:
        size = sum(len(record.content.data) for record in self.records)
        return len(self.records) <= most_records and size <= most_bytes


def commit(step: SharedStep, whole: Whole) -> Commit:
    """Do ``Transactions.commit_whole``."""
    db, new = step.db, whole.new
    if new.fence is not None and not lease_rows.holding(db, [new.fence]):
        raise StaleFenceError(stale(new.fence))
    if new.once is not None:
        committed = once.committed(db, new.once, new.owner)
        if committed is not None:
            return rows.committed(db, committed)
    if whole.is_large():
        return _commit_large(step, whole)
    (done,) = _commit(step, [whole])
    id_ = done.transaction.id
    if new.fence is not None:
        db.execute(sql.ADD_FENCE, (id_, *new.fence))
    if new.once is not None:
        db.execute(sql.ADD_NUMBER, (id_, *new.once))
        rows.set_newest(db, id_, new.once.key, step.present.ms)
    step.decisions.add(Decision.COMMITTED)
    return done


def commit_together(step: SharedStep, wholes: Sequence[Whole]) -> list[Commit]:
    """Commit transactions that may share statements, all or none, in this order."""
    done = _commit(step, wholes)
    step.decisions.add(Decision.COMMITTED, len(done))
    return done


def _commit_large(step: SharedStep, whole: Whole) -> Commit:
    begun = steps.begin(step, whole.new)
    for found in (
        steps.write(step, begun.id, whole.records, whole.limits),
        steps.commit(step, begun.id, len(whole.records)),
    ):
        if isinstance(found, OplogError):
            raise found
    assert isinstance(found, Commit)
    return found


def _commit(step: SharedStep, wholes: Sequence[Whole]) -> list[Commit]:
    db, present = step.db, step.present
    sizes = (
        (log, len(content.data)) for each in wholes for _, log, content, _ in each.records if log
    )
    room.require(db, sizes, present)
    runs = _Runs(db, present.ms)
    entries = _Entries(db, wholes, present.ms)
    ids = _new_ids(db, len(wholes), present.ms)
    done = [
        _committed(id_, each, entries, runs, present.ms)
        for id_, each in zip(ids, wholes, strict=True)
    ]
    entries.insert()
    runs.insert()
    rows.add_committed(db, done)
    return done


class _Entries:
    """The new entries of topics, numbered past the heads of their logs. See ``APPENDER``.

    Raises TopicNotFoundError.
    """

    def __init__(self, db: sqlite3.Connection, wholes: Iterable[Whole], now: int) -> None:
        logs = {each.new.log for each in wholes}
        logs.update(record.log for each in wholes for record in each.records if record.log)
        self._db = db
        self._stamp = stamp(now, 0)
        self._heads = {
            log: (head, number) for log, head, number in db.execute(sql.HEADS, (as_json([*logs]),))
        }
        if gone := logs - self._heads.keys():
            raise no_topic(f"of log {min(gone)}")
        self._before = dict(self._heads)
        self._entries: list[tuple[int, int, str, str, int]] = []
        self._records: list[tuple[int, int, int, str, int]] = []

    def add(self, log: int, kind: EntryKind, data: str) -> Mark:
        return self._add(log, kind, data, 0)

    def add_message(self, log: int, message: Message) -> Mark:
        return self._add(log, EntryKind.MESSAGE, message.data.decode(), 0)

    def add_record(self, id_: int, record: Record, message: Message) -> None:
        log, data = record.log, message.data.decode()
        offset = self._add(log, EntryKind.DEFERRED, data, message.ttl or 0).offset
        self._records.append((id_, record.lsn, log, record.digest, base(log) + offset))

    def _add(self, log: int, kind: EntryKind, data: str, ttl: int) -> Mark:
        head, last = self._heads[log]
        offset, number = head + 1, max(self._stamp, last + 1)
        self._heads[log] = offset, number
        ms, sequence = unstamp(number)
        expires = -(ms + 1000 * ttl) if ttl else 0  # of a record
        self._entries.append((base(log) + offset, number, kind.value, data, expires))
        return Mark(offset, ms, sequence)

    def insert(self) -> None:
        db = self._db
        for table, added in (("entries", self._entries), (sql.RECORDS, self._records)):
            for statement, values in insert(table, added):
                db.execute(statement, values)
        heads = [(log, *head) for log, head in self._heads.items()]
        db.execute(sql.SET_HEADS, (as_json(heads),))
        for log, last, _ in heads:
            head, number = self._before[log]
            first = max(self._stamp, number + 1)
            if first > self._stamp + MAX_LEAD:
                given = {"log": log, "last": last, "first": head + 1, "stamp": first}
                db.execute(sql.ADD_DATED, given)


class _Runs:
    """The new operations, numbered past the head of the oplog."""

    def __init__(self, db: sqlite3.Connection, now: int) -> None:
        self._db = db
        self._now = now
        self._head: Mark | None = None
        self._operations: list[tuple[str, str, msgspec.Raw, str]] = []

    def add(self, id_: int, operations: Sequence[tuple[int, Operation]]) -> OperationRun:
        """Add the operations of a transaction by their lsn."""
        if self._head is None:
            self._head = oplog.read_head(self._db)
        first = self._head.offset + len(self._operations) + 1
        for lsn, each in operations:
            identity = f',"txn":"{id_}","lsn":{lsn},"of":{len(operations)}}}'
            self._operations.append((each.event, each.key, msgspec.Raw(each.data), identity))
        return OperationRun(first, len(operations), max(self._now, self._head.ms))

    def insert(self) -> None:
        """Append them, and fold them into the states."""
        if not self._operations:
            return
        count = len(self._operations)
        given = {"body": as_json(self._operations), "now": self._now, "count": count}
        for statement in sql.APPEND_WHOLE_OPERATIONS:
            self._db.execute(statement, given)
        self._db.execute(statements.TRIM)


def _new_ids(db: sqlite3.Connection, count: int, now: int) -> Collection[int]:
    """Return ids without a row."""
    first = FIRST_ID + (now << sql.RANDOM_BITS)
    found: set[int] = set()
    while len(found) < count:
        drawn = {first + getrandbits(sql.RANDOM_BITS) for _ in range(count - len(found))}
        used = db.execute(sql.USED, (as_json([*drawn]),)).fetchall()
        found |= drawn - {id_ for (id_,) in used}
    return found


def _committed(id_: int, whole: Whole, entries: _Entries, runs: _Runs, now: int) -> Commit:
    """Add the entries and operations of a transaction. Return its commit."""
    new, records, text = whole.new, sorted(whole.records), str(id_)
    if new.group is None:
        begin = entries.add(new.log, EntryKind.BEGIN, encode_marker(Marker(text)))
    else:
        begun = commit_log.begin_record(id_, now + new.timeout_ms)
        begin = entries.add_message(new.log, begun)
    operations = []
    for each in whole.records:
        if isinstance(each.content, Operation):
            operations.append((each.lsn, each.content))
        else:
            entries.add_record(id_, each, each.content)
    touched = sorted({each.log for each in records})
    topics = [log for log in touched if log] if new.group is not None else [new.log]
    logs = []
    for log in topics:
        lsns = [each.lsn for each in records if each.log == log]
        marker = Marker(text, len(lsns), lsns[-1] if lsns else -1)
        mark = entries.add(log, EntryKind.COMMIT, encode_marker(marker))
        logs.append(CommittedLog(log, mark, marker.last))
    if new.group is None:
        commit = logs[0].mark
    else:
        commit = entries.add_message(new.log, commit_log.commit_record(id_, len(records)))
    transaction = Transaction(
        id=id_,
        log=new.log,
        group=new.group,
        only_log=new.only_log,
        state=State.COMMITTED,
        reason=None,
        begun_ms=now,
        expires_ms=now + new.timeout_ms,
        logs=tuple(touched),
        records=len(records),
        bytes=sum(len(each.content.data) for each in records),
        begin=begin,
        commit=commit,
        fence=new.fence,
        once=new.once,
        owner=new.owner,
    )
    indexes = {0: OPLOG_INDEX} | {log: index for index, log in enumerate(topics)}
    order = array("I", [indexes[each.log] for each in records])
    run = (runs.add(id_, sorted(operations)),) if operations else ()
    return Commit(transaction, tuple(logs), run, order)
