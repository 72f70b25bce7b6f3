"""Whole transactions: begun, written and committed in one step, several of them by one statement.

A step has no effect if it raises an OplogError.
"""

import sqlite3
from array import array
from collections.abc import Collection, Sequence
from random import getrandbits
from typing import Any, NamedTuple

import msgspec

from oplogd.errors import OplogError, StaleFenceError
from oplogd.model import commit_log
from oplogd.model.lease import stale
from oplogd.model.message import Message
from oplogd.model.names import no_topic
from oplogd.model.operation import Operation
from oplogd.model.pointer import Decision
from oplogd.model.transaction import FIRST_ID, Marker, Record, State
from oplogd.store.sqlite import leases as lease_rows
from oplogd.store.sqlite.file import statements
from oplogd.store.sqlite.file.parts import STATEMENT_BYTES, STATEMENT_OPERATIONS, as_json
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.log import log as oplog
from oplogd.store.sqlite.topics import entries as topic_entries
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

# A larger transaction takes statements of its own. See `MAX_TOGETHER` of `shared_write`.
_SHARED_BYTES = STATEMENT_BYTES // 64
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
    if new.once is not None and (committed := once.committed(db, new.once)) is not None:
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
    layout = _Layout()
    ids = _new_ids(db, len(wholes), present.ms)
    drafts = [layout.add(id_, whole, present.ms) for id_, whole in zip(ids, wholes, strict=True)]
    firsts = topic_entries.place_whole(db, [*layout.entries.items()], present.ms)
    if gone := layout.entries.keys() - firsts.keys():
        raise no_topic(f"of log {min(gone)}")
    runs = _append_operations(db, drafts, present.ms)
    done = [_done(draft, firsts, run, present.ms) for draft, run in zip(drafts, runs, strict=True)]
    rows.add_committed(db, done)
    return done


class _Draft(NamedTuple):
    """A transaction before its entries have places.

    ``begin`` and ``commit``: the places of these records, or entries, among the new entries of the
    commit log. ``markers``: in each touched topic the place of the COMMIT entry among the new
    entries, and its marker.
    """

    id: int
    whole: Whole
    begin: int
    commit: int
    markers: dict[int, tuple[int, Marker]]
    operations: list[tuple[int, Operation]]


class _Layout:
    """``entries``: the new ones of each log. See ``place_whole``."""

    def __init__(self) -> None:
        self.entries: dict[int, list[tuple[Any, ...]]] = {}

    def add(self, id_: int, whole: Whole, now: int) -> _Draft:
        new, text = whole.new, str(id_)
        if new.group is None:
            begin = self._add(new.log, None, Marker(text), EntryKind.BEGIN)
        else:
            begin = self._tell(new.log, commit_log.begin_record(id_, now + new.timeout_ms))
        operations = []
        counts = {} if new.group is not None else {new.log: (0, -1)}
        for lsn, log, content, digest in whole.records:
            if isinstance(content, Operation):
                operations.append((lsn, content))
                continue
            ttl = None if content.ttl is None else content.ttl * 1000
            data = msgspec.Raw(content.data)
            self._add(log, ttl, data, EntryKind.DEFERRED, id_, lsn, digest)
            count, last = counts.get(log, (0, -1))
            counts[log] = count + 1, max(last, lsn)
        markers = {}
        for log in sorted(counts):
            marker = Marker(text, *counts[log])
            markers[log] = self._add(log, None, marker, EntryKind.COMMIT), marker
        if new.group is None:
            commit = markers[new.log][0]
        else:
            commit = self._tell(new.log, commit_log.commit_record(id_, len(whole.records)))
        operations.sort()
        return _Draft(id_, whole, begin, commit, markers, operations)

    def _tell(self, log: int, record: Message) -> int:
        return self._add(log, None, msgspec.Raw(record.data), EntryKind.MESSAGE)

    def _add(self, log: int, *entry: Any) -> int:
        """Add an entry. Return its place among the new ones of its log."""
        found = self.entries.setdefault(log, [])
        found.append(entry)
        return len(found) - 1


def _new_ids(db: sqlite3.Connection, count: int, now: int) -> Collection[int]:
    """Return ids without a row."""
    first = FIRST_ID + (now << sql.RANDOM_BITS)
    found: set[int] = set()
    while len(found) < count:
        drawn = {first + getrandbits(sql.RANDOM_BITS) for _ in range(count - len(found))}
        used = db.execute(sql.USED, (as_json([*drawn]),)).fetchall()
        found |= drawn - {id_ for (id_,) in used}
    return found


def _append_operations(
    db: sqlite3.Connection, drafts: Sequence[_Draft], now: int
) -> list[OperationRun | None]:
    """Append the operations to the oplog and fold them into the states."""
    body = [
        (
            content.event,
            content.key,
            msgspec.Raw(content.data),
            f',"txn":"{draft.id}","lsn":{lsn},"of":{len(draft.operations)}}}',
        )
        for draft in drafts
        for lsn, content in draft.operations
    ]
    if not body:
        return [None] * len(drafts)
    before = oplog.read_head(db)
    given = {"body": as_json(body), "now": now, "count": len(body)}
    for statement in sql.APPEND_WHOLE_OPERATIONS:
        db.execute(statement, given)
    db.execute(statements.TRIM)
    runs: list[OperationRun | None] = []
    first, ms = before.offset + 1, max(now, before.ms)
    for draft in drafts:
        count = len(draft.operations)
        runs.append(OperationRun(first, count, ms) if count else None)
        first += count
    return runs


def _done(
    draft: _Draft, firsts: topic_entries.Firsts, run: OperationRun | None, now: int
) -> Commit:
    new, records = draft.whole.new, draft.whole.records

    def mark(log: int, place: int) -> Any:
        offset, number = firsts[log]
        return topic_entries.mark_of(offset + place, number + place)

    logs = [
        CommittedLog(log, mark(log, place), marker.last)
        for log, (place, marker) in draft.markers.items()
    ]
    indexes = {each.log: index for index, each in enumerate(logs)}
    touched = {each.log for each in records}
    transaction = Transaction(
        id=draft.id,
        log=new.log,
        group=new.group,
        only_log=new.only_log,
        state=State.COMMITTED,
        reason=None,
        begun_ms=now,
        expires_ms=now + new.timeout_ms,
        logs=tuple(sorted(touched)),
        records=len(records),
        bytes=sum(len(each.content.data) for each in records),
        begin=mark(new.log, draft.begin),
        commit=mark(new.log, draft.commit),
        fence=new.fence,
        once=new.once,
    )
    order = array("I", [indexes.get(each.log, OPLOG_INDEX) for each in sorted(records)])
    return Commit(transaction, tuple(logs), () if run is None else (run,), order)
