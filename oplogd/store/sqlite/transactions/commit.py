"""The commit of a transaction: one transaction of SQLite over all its logs.

No Python loop runs over the records: the statements run without the GIL.
"""

import sqlite3

from oplogd.errors import OplogError
from oplogd.model import commit_log
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision
from oplogd.model.transaction import Marker, State, lacking
from oplogd.store.sqlite.file import statements
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.log import log as oplog
from oplogd.store.sqlite.topics.entries import mark_of
from oplogd.store.sqlite.transactions import rows
from oplogd.store.sqlite.transactions import statements as sql
from oplogd.store.sqlite.transactions.steps import (
    append_markers,
    append_message,
    find_fenced,
    marked_logs,
)
from oplogd.store.sqlite.upkeep import leaving
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import (
    Commit,
    CommittedLog,
    OperationRun,
    Transaction,
    refusal,
)

# SQLite's largest integer.
_MAX_INTEGER = (1 << 63) - 1


def commit(step: SharedStep, id_: int, records: int) -> Commit | OplogError:
    """Do ``Transactions.commit``. See ``steps`` for returned errors."""
    db = step.db
    transaction = find_fenced(step, id_)
    if transaction.state is State.OPEN:
        _check_complete(db, id_, records)
        _commit(db, transaction, records, step.present.ms)
        step.decisions.add(Decision.COMMITTED)
        transaction = rows.find(db, id_)
    elif transaction.state is not State.COMMITTED or transaction.records != records:
        return refusal(transaction, records)
    return rows.committed(db, transaction)


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
    placed = {}
    if transaction.group is not None:
        record = commit_log.commit_record(id_, records)
        placed = append_message(db, transaction.log, record, now)
    place = placed.get(transaction.log)
    markers = {}
    for log in marked_logs(transaction):
        count, _, last = found.get(log, (0, -1, -1))
        markers[log] = Marker(str(id_), count, last)
    placed = append_markers(db, EntryKind.COMMIT, markers, now)
    if transaction.group is None:
        place = placed.get(transaction.log)
    logs = [
        CommittedLog(log, mark_of(*placed[log]) if log in placed else None, marker.last)
        for log, marker in markers.items()
    ]
    given = {"txn": id_, "logs": as_json([*markers])}
    (order,) = db.execute(sql.ORDER, given).fetchone()
    runs = []
    if 0 in found:
        count, first, _ = found[0]
        runs.append(_append_operations(db, id_, count, first, now))
    # Operations are entries now. The records of a deleted topic have no readers.
    done = [0, *(log for log, mark, _ in logs if mark is None)]
    db.execute(sql.REMOVE_OF_LOGS, (id_, as_json(done)))
    rows.set_committed(db, id_, records, place, logs, runs, order, now)


def _append_operations(
    db: sqlite3.Connection, id_: int, count: int, first: int, now: int
) -> OperationRun:
    """Append the operations to the oplog and fold them into the states. ``first``: their lsn."""
    before: Mark = oplog.read_head(db)
    for statement in sql.APPEND_OPERATIONS:
        db.execute(statement, {"txn": id_, "now": now, "count": count, "first": first})
    db.execute(statements.TRIM)
    return OperationRun(before.offset + 1, count, max(now, before.ms))
