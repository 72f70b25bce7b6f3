"""Reads and writes of the log and the states, each one call on a connection.

Batches go in as JSON and come out as one string: see ``statements``.
"""

import contextlib
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.guard import GuardedClock
from oplogd.errors import LogReplacedError
from oplogd.model.event_id import MAX_MS, Mark
from oplogd.model.operation import Operation
from oplogd.store.base import (
    SECRET_BYTES,
    Entry,
    FencedBatch,
    LogBounds,
    State,
    StateCursor,
    StatesPage,
    sound_identity,
    sound_secret,
)
from oplogd.store.corrections import Correction, CorrectionResult, LastOperation, judged
from oplogd.store.sqlite.file import statements as sql
from oplogd.store.sqlite.file.connection import snapshot, transaction
from oplogd.store.sqlite.file.migration import migrate
from oplogd.store.sqlite.file.parts import as_json, parts
from oplogd.store.sqlite.file.schema import CREATE_OPS
from oplogd.store.sqlite.file.template import READ_CHARACTERS
from oplogd.store.sqlite.leases import holding
from oplogd.store.sqlite.log import clock_rows
from oplogd.store.sqlite.log.hand_over import Written
from oplogd.store.sqlite.topics import catalogue
from oplogd.store.sqlite.topics import epoch as topic_epoch
from oplogd.store.sqlite.topics.bound_statements import SET_MAX, TOTAL_LOG


def prepare(
    db: sqlite3.Connection,
    path: Path,
    clock: GuardedClock,
    max_bytes: int | None,
    new_bytes: int,
    topic_ttl: int | None,
    topics_max_bytes: int | None,
) -> None:
    """Create or migrate the file, and set the cap and the values of all topics.

    The clock begins with the time in the file.
    """
    with transaction(db):
        migrate(db, path)
        _make_secret(db)
        clock.begin(clock_rows.find(db))
        if db.execute(sql.HEAD).fetchone() is None:
            now = clock.now_ms()
            db.execute(sql.NEW_LOG, (max_bytes or new_bytes, now, now))
        if max_bytes is not None:
            db.execute(sql.SET_CAP, (max_bytes,))
        if topic_ttl is not None:
            catalogue.set_default_ttl(db, topic_ttl, clock.removal())
        if topics_max_bytes is not None:
            db.execute(SET_MAX, (topics_max_bytes or None, TOTAL_LOG))
        db.execute(sql.OPENED)
        db.execute(sql.FORGET_OPENINGS)
    db.execute(sql.TRIM)  # the cap may be lower than before


def record_replacement(db: sqlite3.Connection, path: Path) -> None:
    """Record an opening: the file at ``path`` was replaced, perhaps by an older copy.

    Raises sqlite3.Error if it is empty: only ``prepare`` begins a log.
    """
    with transaction(db):
        db.execute(sql.HEAD)
        migrate(db, path)
        _make_secret(db)
        db.execute(sql.OPENED)


def append(
    db: sqlite3.Connection, operations: Sequence[Operation], clock: Clock = SYSTEM
) -> list[Written]:
    """Append all operations or none, in the open transaction or in one of its own.

    Return the entries behind one that is still in the log. A large batch takes several statements,
    since Python and SQLite copy a statement's input.
    """
    written: list[Written] = []
    chunks = list(parts(operations, lambda operation: len(operation.data)))
    now = clock.now_ms()  # all operations of a batch share their time
    needs_transaction = len(chunks) > 1 and not db.in_transaction
    with transaction(db) if needs_transaction else contextlib.nullcontext():
        for chunk in chunks:  # each statement appends, folds and trims
            rows = [(event, key, msgspec.Raw(data)) for event, key, data in chunk]
            body = as_json(rows)
            given = {"now": now, "body": body, "operations": len(rows)}
            # SQLite commits the statement behind its last row.
            ((head, ms, before_ms),) = db.execute(sql.APPEND, given).fetchall()
            if before_ms is not None:
                before = Mark(head - len(rows), before_ms)
                written.append(Written(before, ms, chunk, len(body)))
    return written


def append_fenced(
    db: sqlite3.Connection, batches: Sequence[FencedBatch], clock: Clock = SYSTEM
) -> list[bool]:
    """Append the batches whose fences hold, in one transaction. Return which ones did."""
    with transaction(db):
        held = holding(db, [batch.fence for batch in batches])
        results = [batch.fence in held for batch in batches]
        operations = [
            operation
            for batch, holds in zip(batches, results, strict=True)
            if holds
            for operation in batch.operations
        ]
        if operations:
            append(db, operations, clock)
    return results


def correct(
    db: sqlite3.Connection, corrections: Sequence[Correction], clock: Clock
) -> list[CorrectionResult]:
    """Judge, append and fold corrections in one transaction."""
    keys = as_json([operation.key for operation, _ in corrections])
    with transaction(db):
        found = db.execute(sql.LAST_OPERATIONS, (keys,))
        last = {key: LastOperation(n, bool(deleted), data) for key, n, deleted, data in found}
        results = judged(corrections, last)
        passed = [
            operation
            for (operation, _), result in zip(corrections, results, strict=True)
            if result is CorrectionResult.APPLIED
        ]
        if passed:
            append(db, passed, clock)
    return results


def read_identity(db: sqlite3.Connection) -> str | None:
    return sound_identity(db.execute(sql.IDENTITY).fetchone()[0])


def find_identity(db: sqlite3.Connection) -> str | None:
    """Return the identity; None if the file has none, since only older agents have opened it."""
    (has_table,) = db.execute(
        "SELECT count(*) FROM sqlite_master WHERE name = 'identity'"
    ).fetchone()
    return read_identity(db) if has_table else None


def read_secret(db: sqlite3.Connection) -> bytes | None:
    return sound_secret(db.execute(sql.SECRET).fetchone()[0])


def _make_secret(db: sqlite3.Connection) -> None:
    """Make the secret, unless the file has one, in the caller's transaction.

    SQLite's own random numbers are not made for keys.
    """
    db.execute(sql.MAKE_SECRET, (secrets.token_bytes(SECRET_BYTES),))


def read_head(db: sqlite3.Connection) -> Mark:
    return Mark(*db.execute(sql.HEAD).fetchone())


def read(db: sqlite3.Connection, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
    lines, found_ms, is_of_this_log = db.execute(
        sql.READ, {"after": after, "limit": limit}
    ).fetchone()
    if at_ms is not None and (found_ms not in (None, at_ms) or not is_of_this_log):
        raise LogReplacedError(f"the log's entry at offset {after} is another one")
    if lines is None:
        return []
    entries = []
    for line in lines.split("\n"):
        seq, ts, event, data = line.split(" ", 3)
        entries.append(Entry(int(seq), int(ts), event, data))
    return entries


def states(
    db: sqlite3.Connection,
    start: StateCursor,
    upto: int,
    limit: int,
    *,
    live_only: bool,
    deleted_only: bool = False,
) -> StatesPage:
    given = {
        "ts": start.ms,
        "n": -1 if start.tie is None else start.tie,
        "upto": upto,
        "limit": limit,
    }
    statement = sql.DELETED_STATES if deleted_only else sql.STATES
    (lines,) = db.execute(sql.LIVE_STATES if live_only else statement, given).fetchone()
    if lines is None:
        return StatesPage([], None)
    found = []
    characters = 0
    for line in lines.split("\n"):
        ts, n, deleted, data = line.split(" ", 3)
        found.append(State(StateCursor(int(ts), int(n)), deleted == "1", data))
        characters += len(data)
    is_full = len(found) == limit or characters >= READ_CHARACTERS
    return StatesPage(found, found[-1].cursor if is_full else None)


def read_bounds(db: sqlite3.Connection, offset: int, clock: Clock = SYSTEM) -> LogBounds:
    """See ``Store.locate``. Runs in the open transaction or in one of its own."""
    with contextlib.nullcontext() if db.in_transaction else snapshot(db):
        head, head_ts, created, first, purged = db.execute(sql.LOCATE).fetchone()
        oldest = db.execute(sql.OLDEST).fetchone()
        at = db.execute(sql.AT, (offset,)).fetchone()
        unwritten = db.execute(sql.UNWRITTEN).fetchall()
        set_aside = db.execute(sql.ALL_SET_ASIDE).fetchall()
    return LogBounds(
        head=Mark(head, head_ts),
        oldest=Mark(*oldest) if oldest else None,
        at_ms=at[0] if at else None,
        created_ms=created,
        first_offset=first,
        purged_ms=purged,
        adopted_ms=0,
        unwritten=tuple(unwritten),
        set_aside=tuple(set_aside),
        now_ms=clock.now_ms(),
    )


def seek(db: sqlite3.Connection, ms: int) -> Mark:
    offset, found_ms = db.execute(sql.SEEK, {"ms": min(ms, MAX_MS)}).fetchone()
    return Mark(offset or 0, found_ms or 0)


def purge(db: sqlite3.Connection, before_ms: int) -> int:
    with transaction(db):
        count = db.execute(sql.PURGE, (before_ms,)).rowcount
        if count:
            db.execute(sql.PURGED, (before_ms,))
    return count


def new_epoch(db: sqlite3.Connection, clock: Clock) -> None:
    db.execute("DROP VIEW batch")  # its trigger would follow the renamed table
    with transaction(db):
        now = clock.now_ms()
        head = read_head(db)
        oldest = db.execute(sql.OLDEST).fetchone()
        if head.ms > now:  # the new log will use these times again, for other entries
            first = (
                db.execute(sql.FIRST_AFTER, (now,)).fetchone()[0]
                if oldest and oldest[1] <= now
                else now + 1
            )
            db.execute(sql.SET_ASIDE, (first - 1, head.ms + 1))
        for statement in sql.NEW_EPOCH_SPANS:
            db.execute(statement, {"now": now})
        if oldest:
            db.execute(f"ALTER TABLE ops RENAME TO ops_set_aside_at_{head.offset}")
            db.execute(CREATE_OPS)
        db.execute("UPDATE states SET ts = ?", (now,))
        db.execute(sql.NEW_EPOCH, (now, now, now))
        topic_epoch.repair(db, now)
        db.execute(sql.OPENED)
    db.executescript(sql.APPENDER)
