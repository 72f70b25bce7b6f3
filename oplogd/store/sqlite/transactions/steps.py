"""The steps of a transaction, each in the caller's transaction of SQLite.

A step that raises an OplogError has no effect. A step that returns one has an effect all the same:
it found the transaction overdue, or its fence stale, and aborted it.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from oplogd.clock.ages import Present
from oplogd.errors import (
    OplogError,
    StaleFenceError,
    TopicError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model import commit_log
from oplogd.model.lease import stale, stale_transaction
from oplogd.model.message import Message
from oplogd.model.names import no_topic
from oplogd.model.operation import Operation
from oplogd.model.transaction import Marker, Reason, Record, State, encode_marker, reused
from oplogd.store.sqlite import leases as lease_rows
from oplogd.store.sqlite.file.parts import as_json, parts
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.statements import base
from oplogd.store.sqlite.transactions import rows
from oplogd.store.sqlite.transactions import statements as sql
from oplogd.store.sqlite.upkeep import leaving, room
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import Decisions, Limits, NewTransaction, Transaction


def begin(db: sqlite3.Connection, new: NewTransaction, now: int) -> Transaction:
    if new.fence is not None and not lease_rows.holding(db, [new.fence]):
        raise StaleFenceError(stale(new.fence))
    transaction = rows.add(db, new, now)
    place = (
        append_markers(db, EntryKind.BEGIN, {new.log: Marker(str(transaction.id))}, now)
        if new.group is None
        else append_message(
            db, new.log, commit_log.begin_record(transaction.id, transaction.expires_ms), now
        )
    )
    if new.log not in place:
        raise no_topic(f"of log {new.log}")
    return rows.set_begin(db, transaction.id, place[new.log])


def write(
    db: sqlite3.Connection,
    id_: int,
    records: Sequence[Record],
    limits: Limits,
    present: Present,
    decisions: Decisions,
) -> Transaction | OplogError:
    transaction = find_fenced(db, id_, present, decisions)
    if transaction.state is not State.OPEN:
        return wrong_state(transaction)
    new = _new_records(db, id_, records)
    octets = sum(len(record.content.data) for record in new)
    _check(transaction, new, octets, limits)
    sizes = ((record.log, len(record.content.data)) for record in new if record.log)
    room.require(db, sizes, present)
    for part in parts(new, _size):
        _add(db, id_, part, present.ms)
    return rows.set_written(db, transaction, {each.log for each in new}, len(new), octets)


def abort(
    db: sqlite3.Connection, id_: int, present: Present, decisions: Decisions
) -> Transaction | OplogError:
    transaction = find_current(db, id_, present, decisions)
    if transaction.state is State.OPEN:
        return _abort(db, transaction, Reason.CLIENT, present.ms, decisions)
    return transaction if transaction.state is State.ABORTED else wrong_state(transaction)


def is_overdue(transaction: Transaction, present: Present) -> bool:
    return transaction.state is State.OPEN and present.is_over(
        transaction.begun_ms, transaction.expires_ms
    )


def find_current(
    db: sqlite3.Connection, id_: int, present: Present, decisions: Decisions
) -> Transaction:
    """Return a transaction. One that is overdue is aborted first."""
    transaction = rows.find(db, id_)
    if is_overdue(transaction, present):
        return _abort(db, transaction, Reason.TIMEOUT, present.ms, decisions)
    return transaction


def find_fenced(
    db: sqlite3.Connection, id_: int, present: Present, decisions: Decisions
) -> Transaction:
    """Return a transaction. One that is overdue, or whose fence is stale, is aborted first."""
    transaction = find_current(db, id_, present, decisions)
    fence = transaction.fence
    if fence is None or transaction.state is not State.OPEN or lease_rows.holding(db, [fence]):
        return transaction
    return _abort(db, transaction, Reason.FENCE, present.ms, decisions)


def wrong_state(transaction: Transaction) -> OplogError:
    """Return the error for a transaction that is not open."""
    if transaction.reason is Reason.FENCE and transaction.fence is not None:
        return stale_transaction(transaction.id, transaction.fence)
    end = "has committed"
    if transaction.reason is not None:
        end = "timed out" if transaction.reason is Reason.TIMEOUT else f"was {transaction.reason}"
    return TransactionConflictError(f"transaction {transaction.id} {end}")


def marked_logs(transaction: Transaction) -> list[int]:
    """Return the logs of topics that get an entry for the decision."""
    logs = set(transaction.logs) - {0}
    return sorted(logs | {transaction.log} if transaction.group is None else logs)


def append_message(
    db: sqlite3.Connection, log: int, message: Message, now: int
) -> topic_entries.Firsts:
    """Append a record to the commit log of a group."""
    groups = [(log, [(None, msgspec.Raw(message.data))])]
    return topic_entries.place(db, EntryKind.MESSAGE, groups, now)


def append_markers(
    db: sqlite3.Connection, kind: EntryKind, markers: dict[int, Marker], now: int
) -> topic_entries.Firsts:
    """Append an entry to each of these logs whose topic exists."""
    groups = [
        (log, [(None, msgspec.Raw(encode_marker(marker).encode()))])
        for log, marker in markers.items()
    ]
    return topic_entries.place(db, kind, groups, now)


def _abort(
    db: sqlite3.Connection,
    transaction: Transaction,
    reason: Reason,
    now: int,
    decisions: Decisions,
) -> Transaction:
    id_ = transaction.id
    if transaction.group is not None:
        append_message(db, transaction.log, commit_log.abort_record(id_, reason), now)
    markers = dict.fromkeys(marked_logs(transaction), Marker(str(id_)))
    append_markers(db, EntryKind.ABORT, markers, now)
    db.execute(sql.REMOVE_ALL, (id_,))
    leaving.look_again(db, transaction.logs)
    if reason is Reason.TIMEOUT:
        decisions.timed_out += 1
    else:
        decisions.aborted += 1
    return rows.set_aborted(db, id_, reason, now)


def _new_records(db: sqlite3.Connection, id_: int, records: Sequence[Record]) -> list[Record]:
    """Return each record that is not stored yet, once. Raises TransactionConflictError."""
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


def _check(transaction: Transaction, new: Sequence[Record], octets: int, limits: Limits) -> None:
    """Raises TopicError and TransactionTooLargeError."""
    id_ = transaction.id
    if any(transaction.only_log not in (None, record.log) for record in new):
        raise TopicError("topic", f"is not the topic of transaction {id_}")
    if any(record.lsn >= limits.records for record in new):
        raise TransactionTooLargeError(
            f"transaction {id_} would have more than {limits.records:,} records"
        )
    if transaction.octets + octets > limits.octets:
        raise TransactionTooLargeError(
            f"transaction {id_} would have more than {limits.octets:,} bytes"
        )


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
