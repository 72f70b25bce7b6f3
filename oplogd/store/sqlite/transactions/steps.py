"""The steps of a transaction, each in the caller's transaction of SQLite.

A step has no effect if it raises an OplogError. If it returns one, it has an effect: it found the
transaction overdue, or its fence stale, and aborted it.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from oplogd.errors import OplogError, StaleFenceError
from oplogd.model import commit_log
from oplogd.model.event_id import Mark
from oplogd.model.lease import stale
from oplogd.model.message import Message
from oplogd.model.names import no_topic
from oplogd.model.operation import Operation
from oplogd.model.pointer import Decision
from oplogd.model.transaction import Marker, Reason, Record, State, encode_marker, lacking, reused
from oplogd.store.sqlite import leases as lease_rows
from oplogd.store.sqlite.file import statements
from oplogd.store.sqlite.file.parts import as_json, parts
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.log import log as oplog
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.statements import base
from oplogd.store.sqlite.transactions import once, rows
from oplogd.store.sqlite.transactions import statements as sql
from oplogd.store.sqlite.upkeep import leaving, room
from oplogd.store.topics import EntryKind
from oplogd.store.transaction_rules import check_records, refusal, too_large
from oplogd.store.transactions import (
    Commit,
    CommittedLog,
    NewTransaction,
    OperationRun,
    RecordLimits,
    Transaction,
)

# SQLite's largest integer.
_MAX_INTEGER = (1 << 63) - 1


def begin(step: SharedStep, new: NewTransaction) -> Transaction:
    db, now = step.db, step.present.ms
    if new.fence is not None and not lease_rows.holding(db, [new.fence]):
        raise StaleFenceError(stale(new.fence))
    if new.once is not None:
        committed = once.committed(db, new.once, new.owner)
        if committed is not None:
            return committed
    transaction = rows.add(db, new, now)
    markers = {new.log: Marker(str(transaction.id))} if new.group is None else {}
    record = commit_log.begin_record(transaction.id, transaction.expires_ms)
    _, place = _append(db, transaction, EntryKind.BEGIN, record, markers, now)
    if place is None:
        raise no_topic(f"of log {new.log}")
    db.execute(sql.SET_BEGIN, {"id": transaction.id, "offset": place[0], "stamp": place[1]})
    return rows.find(db, transaction.id)


def write(
    step: SharedStep, id_: int, records: Sequence[Record], limits: RecordLimits
) -> Transaction | OplogError:
    db, present, _ = step
    transaction = find_fenced(step, id_)
    if transaction.state is not State.OPEN:
        return refusal(transaction)
    new = _new_records(db, id_, records)
    check_records(transaction.only_log, new, limits)
    size = sum(len(record.content.data) for record in new)
    if transaction.bytes + size > limits.bytes:
        raise too_large(limits)
    sizes = ((record.log, len(record.content.data)) for record in new if record.log)
    room.require(db, sizes, present)
    for part in parts(new, _size):
        _add(db, id_, part, present.ms)
    given = {
        "id": id_,
        "logs": as_json(sorted({each.log for each in new}.union(transaction.logs))),
        "records": transaction.records + len(new),
        "octets": transaction.bytes + size,
    }
    db.execute(sql.SET_WRITTEN, given)
    return rows.find(db, id_)


def commit(step: SharedStep, id_: int, records: int) -> Commit | OplogError:
    """Do ``Transactions.commit``.

    No Python loop runs over the records: the statements run without the GIL.
    """
    db = step.db
    transaction = find_fenced(step, id_)
    is_judged = transaction.state is State.OPEN or transaction.reason is Reason.ONCE
    if transaction.once is not None and is_judged:
        winner = once.rival(db, transaction.once, transaction.owner)
        if winner is not None:
            if transaction.state is State.OPEN:
                transaction = _abort(step, transaction, Reason.ONCE)
            return once.answer(db, transaction, winner)
    if transaction.state is State.OPEN:
        _check_complete(db, id_, records)
        _commit(db, transaction, records, step.present.ms)
        step.decisions.add(Decision.COMMITTED)
        transaction = rows.find(db, id_)
    elif transaction.state is not State.COMMITTED or transaction.records != records:
        return refusal(transaction, records)
    return rows.committed(db, transaction)


def abort(step: SharedStep, id_: int) -> Transaction | OplogError:
    transaction = find_current(step, id_)
    if transaction.state is State.OPEN:
        return _abort(step, transaction, Reason.CLIENT)
    return transaction if transaction.state is State.ABORTED else refusal(transaction)


def find_current(step: SharedStep, id_: int) -> Transaction:
    """Return a transaction. An overdue one is aborted first."""
    transaction = rows.find(step.db, id_)
    if transaction.is_overdue(step.present):
        return _abort(step, transaction, Reason.TIMEOUT)
    return transaction


def find_fenced(step: SharedStep, id_: int) -> Transaction:
    """Return a transaction. It is aborted first if it is overdue or its fence is stale."""
    transaction = find_current(step, id_)
    fence = transaction.fence
    if fence is None or transaction.state is not State.OPEN or lease_rows.holding(step.db, [fence]):
        return transaction
    return _abort(step, transaction, Reason.FENCE)


def _marked_logs(transaction: Transaction) -> list[int]:
    """Return the logs of topics to get an entry for the decision."""
    logs = set(transaction.logs) - {0}
    return sorted(logs | {transaction.log} if transaction.group is None else logs)


def _append(
    db: sqlite3.Connection,
    transaction: Transaction,
    kind: EntryKind,
    record: Message,
    markers: dict[int, Marker],
    now: int,
) -> tuple[topic_entries.Firsts, tuple[int, int] | None]:
    """Append a marker to each of these logs, and the record to the commit log of a group.

    Return the places of the markers, and the place in the commit log. Deleted topics have none.
    """
    own: topic_entries.Firsts = {}
    if transaction.group is not None:
        group = (transaction.log, [(None, msgspec.Raw(record.data))])
        own = topic_entries.place(db, EntryKind.MESSAGE, [group], now)
    groups = [
        (log, [(None, msgspec.Raw(encode_marker(marker).encode()))])
        for log, marker in markers.items()
    ]
    placed = topic_entries.place(db, kind, groups, now) if groups else {}
    return placed, (own or placed).get(transaction.log)


def _abort(step: SharedStep, transaction: Transaction, reason: Reason) -> Transaction:
    db, now, id_ = step.db, step.present.ms, transaction.id
    markers = dict.fromkeys(_marked_logs(transaction), Marker(str(id_)))
    record = commit_log.abort_record(id_, reason)
    _append(db, transaction, EntryKind.ABORT, record, markers, now)
    db.execute(sql.REMOVE_ALL, (id_,))
    leaving.look_again(db, transaction.logs)
    step.decisions.add(reason)
    db.execute(sql.SET_ABORTED, {"id": id_, "reason": reason, "now": now})
    return rows.find(db, id_)


def _check_complete(db: sqlite3.Connection, id_: int, records: int) -> None:
    """Raises TransactionConflictError if a record is missing."""
    (present,) = db.execute(sql.COUNT, (id_, min(records, _MAX_INTEGER))).fetchone()
    if present == records:
        return
    (first,) = db.execute(sql.FIRST_MISSING, (id_,)).fetchone()
    first = present if first is None else first
    raise lacking(id_, records - present, records, first)


def _commit(db: sqlite3.Connection, transaction: Transaction, records: int, now: int) -> None:
    id_ = transaction.id
    if db.execute(sql.REMOVE_PAST, (id_, records)).rowcount:
        leaving.look_again(db, transaction.logs)
    found = {log: rest for log, *rest in db.execute(sql.BY_LOG, (id_,))}
    markers = {}
    for log in _marked_logs(transaction):
        count, _, last = found.get(log, (0, -1, -1))
        markers[log] = Marker(str(id_), count, last)
    record = commit_log.commit_record(id_, records)
    placed, place = _append(db, transaction, EntryKind.COMMIT, record, markers, now)
    logs = []
    for log, marker in markers.items():
        mark = topic_entries.mark_of(*placed[log]) if log in placed else None
        logs.append(CommittedLog(log, mark, marker.last))
    given = {"txn": id_, "logs": as_json([*markers])}
    (order,) = db.execute(sql.ORDER, given).fetchone()
    runs = []
    if 0 in found:
        count, first, _ = found[0]
        runs.append(_append_operations(db, id_, count, first, now))
    # Operations are entries now. The records of a deleted topic have no readers.
    done = [0, *(log for log, mark, _ in logs if mark is None)]
    db.execute(sql.REMOVE_OF_LOGS, (id_, as_json(done)))
    offset, number = place or (None, None)
    committed = {
        "id": id_,
        "records": records,
        "offset": offset,
        "stamp": number,
        "result": rows.packed(logs, runs, order),
        "now": now,
    }
    db.execute(sql.SET_COMMITTED, committed)
    if transaction.once is not None:
        rows.set_newest(db, id_, transaction.once.key, now)


def _append_operations(
    db: sqlite3.Connection, id_: int, count: int, first: int, now: int
) -> OperationRun:
    """Append the operations to the oplog and fold them into the states. ``first``: their lsn."""
    before: Mark = oplog.read_head(db)
    for statement in sql.APPEND_OPERATIONS:
        db.execute(statement, {"txn": id_, "now": now, "count": count, "first": first})
    db.execute(statements.TRIM)
    return OperationRun(before.offset + 1, count, max(now, before.ms))


def _new_records(db: sqlite3.Connection, id_: int, records: Sequence[Record]) -> list[Record]:
    """Return each record not stored yet, once. Raises TransactionConflictError."""
    lsns = as_json([record.lsn for record in records])
    digests: dict[int, str] = dict(db.execute(sql.KNOWN, (id_, lsns)).fetchall())
    new = []
    for record in records:
        known = digests.get(record.lsn)
        if known is None:
            digests[record.lsn] = record.digest
            new.append(record)
        elif known != record.digest:
            raise reused(record.lsn)
    return new


def _size(record: Record) -> int:
    return len(record.content.data)


def _add(db: sqlite3.Connection, id_: int, records: Sequence[Record], now: int) -> None:
    """Store new records. Raises TopicNotFoundError."""
    operations = []
    messages: dict[int, list[tuple[int | None, msgspec.Raw]]] = {}
    numbers: dict[int, list[tuple[int, str]]] = {}
    limited = set()  # logs with messages that have a time to live of their own
    for lsn, log, content, digest in records:
        data = msgspec.Raw(content.data)
        if isinstance(content, Operation):
            operations.append((lsn, digest, content.event, content.key, data))
        else:
            ttl = None
            if content.ttl is not None:
                ttl = content.ttl * 1000
                limited.add(log)
            messages.setdefault(log, []).append((ttl, data))
            numbers.setdefault(log, []).append((lsn, digest))
    if operations:
        db.execute(sql.ADD_OPERATIONS, {"txn": id_, "body": as_json(operations)})
    if messages:
        placed = topic_entries.place(db, EntryKind.DEFERRED, [*messages.items()], now)
        if gone := messages.keys() - placed.keys():
            raise no_topic(f"of log {min(gone)}")
        db.execute(sql.ADD_MESSAGES, {"txn": id_, "body": as_json([*numbers.items()])})
        for log in limited:
            first = base(log) + placed[log][0]
            db.execute(sql.HIDE_END, {"first": first, "count": len(messages[log])})
