"""Removal of unreadable entries, in small steps: each one call on a connection.

Entries leave at the front only. Others become void: they keep their offsets, which stay dense.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, NamedTuple

from oplogd.clock.ages import Present
from oplogd.errors import TopicNotFoundError
from oplogd.model.pointer import decided_by
from oplogd.model.transaction import decode_marker
from oplogd.store.numbers import may_follow
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.file.pool import ConnectionPool
from oplogd.store.sqlite.pointers import statements as pointer_statements
from oplogd.store.sqlite.pointers import steps as pointer_steps
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics import statements as sql
from oplogd.store.topics import MAX_OFFSET, RECORDS_STAY_MS, EntryKind

# Entries removed by one step: a few ms.
STEP_ENTRIES = 500


@dataclass
class SweepProgress:
    """How far the sweep of one log has come. ``after``: offset of the last entry seen."""

    after: int = 0
    has_ended: bool = False


async def complete(
    writer: ConnectionPool, step: Callable[Concatenate[sqlite3.Connection, ...], int]
) -> int:
    """Repeat a step with its ``progress`` to its end. Return the number of entries removed."""
    removed, progress = 0, SweepProgress()
    while not progress.has_ended:
        removed += await writer.run(partial(step, progress=progress), frees_space=True)
    return removed


def is_needed(db: sqlite3.Connection) -> bool:
    """Return whether there are topics, deleted ones included."""
    return bool(db.execute(sql.EXIST).fetchone()[0])


def expired(db: sqlite3.Connection, now: Present) -> list[int]:
    """Return the logs of topics whose oldest entry is gone."""
    return [log for (log,) in db.execute(sql.EXPIRED, age_statements.given(now))]


def deleted(db: sqlite3.Connection) -> list[int]:
    """Return the logs of deleted topics with a row left."""
    return [log for (log,) in db.execute(sql.DELETED)]


def trim(db: sqlite3.Connection, log: int, now: Present, progress: SweepProgress) -> int:
    """Raise the floor, then remove entries before the front. Return their number."""
    with transaction(db):
        try:
            front = topic_entries.raise_floor(db, log, now)
        except TopicNotFoundError:
            progress.has_ended = True
            return 0
        given = age_statements.given(now) | {"log": log, "longer": RECORDS_STAY_MS}
        keep_from = db.execute(sql.KEEP_FROM, given).fetchone()[0]
        return _remove(db, log, front.offset, keep_from, progress)


def forget(db: sqlite3.Connection, log: int, progress: SweepProgress) -> int:
    """Remove entries of a deleted topic, at the end its row. Return the number of entries."""
    with transaction(db):
        if (head := db.execute(sql.HEAD, (log,)).fetchone()) is None:  # by another agent
            progress.has_ended = True
            return 0
        count = _remove(db, log, MAX_OFFSET, sql.MAX_STAMP, progress, forgets=True)
        if progress.has_ended:
            given = {"log": log, "limit": STEP_ENTRIES}
            if any(db.execute(each, given).rowcount for each in pointer_statements.REMOVE_OF_LOG):
                progress.has_ended = False
            elif may_follow(log, *head):
                for statement in sql.FORGET:
                    db.execute(statement, (log,))
        return count


def forget_dated(db: sqlite3.Connection, now: Present) -> None:
    """Forget the times of writing of removed entries."""
    db.execute(sql.FORGET_DATED, age_statements.given(now) | {"longer": RECORDS_STAY_MS})


def void(db: sqlite3.Connection, now: Present) -> int:
    """Empty messages past their own time to live: they keep their place. Return their number."""
    return db.execute(sql.VOID, age_statements.given(now) | {"limit": STEP_ENTRIES}).rowcount


def void_aborted(db: sqlite3.Connection, now: int, progress: SweepProgress) -> int:
    """Void some entries of pointers reported as aborted. Return their number.

    Append an entry with their names, as a rollback does: they may be in the rings of agents.
    """
    room, count = STEP_ENTRIES, 0
    with transaction(db):
        aborted = db.execute(pointer_statements.ABORTED, (STEP_ENTRIES,)).fetchall()
        progress.has_ended = not aborted
        for log, pointer in aborted:
            given = {"log": log, "pointer": pointer, "limit": room}
            (found,) = db.execute(pointer_statements.SOME_PLACES, given).fetchone()
            places = pointer_steps.decode_numbers(found)
            pointer_steps.void(db, log, pointer, places, now)
            count += len(places)
            room -= _forget_entries(db, log, pointer, room)
            if room == 0:
                return count  # the next step continues here
            db.execute(pointer_statements.SET_VOIDED, given)
    return count


class Removed(NamedTuple):
    """``entries``: of the records among the rows. They are removed, too."""

    rows: int
    entries: int = 0


def stays(db: sqlite3.Connection, log: int, kind: str, data: str) -> bool:
    """Return whether an entry stays behind the front.

    It is the decision about a pointer with messages of a late commit past the front. A rollback
    asks for the decision, and finds these messages by it.
    """
    decided = decided_by(kind, data)
    if decided is None:
        return False
    return bool(db.execute(pointer_statements.STANDS_LATE, (log, decided[0])).fetchone()[0])


def remove_with(db: sqlite3.Connection, log: int, kind: str, data: str, limit: int) -> Removed:
    """Remove up to ``limit`` rows without use after this entry. Return their number."""
    if kind == EntryKind.PUBLISH:
        marker = decode_marker(data.split(" ", 1)[1])
        return Removed(_forget_stored(db, log, int(marker.txn), marker.after, marker.last, limit))
    if (decided := decided_by(kind, data)) is not None:
        pointer, _ = decided
        count = _forget_entries(db, log, pointer, limit)
        if count < limit:
            db.execute(pointer_statements.FORGET, {"log": log, "pointer": pointer})
        return Removed(count)
    if kind == EntryKind.COMMIT:
        records = {"txn": int(decode_marker(data).txn), "log": log, "limit": limit}
        entries = db.execute(sql.REMOVE_DEFERRED, records).rowcount
        return Removed(db.execute(sql.REMOVE_RECORDS, records).rowcount, entries)
    return Removed(0)


def _forget_entries(db: sqlite3.Connection, log: int, pointer: int, limit: int) -> int:
    """Remove up to ``limit`` rows: the index of a pointer's entries, then its stored messages."""
    given = {"log": log, "pointer": pointer, "limit": limit}
    count = db.execute(pointer_statements.REMOVE_SOME_ENTRIES, given).rowcount
    return count + _forget_stored(db, log, pointer, 0, sql.MAX_STAMP, limit - count)


def _forget_stored(
    db: sqlite3.Connection, log: int, pointer: int, after: int, last: int, limit: int
) -> int:
    given = {"log": log, "pointer": pointer, "after": after, "last": last, "limit": limit}
    return db.execute(pointer_statements.REMOVE_SOME_STORED, given).rowcount


def _remove(
    db: sqlite3.Connection,
    log: int,
    upto: int,
    keep_from: int,
    progress: SweepProgress,
    *,
    forgets: bool = False,
) -> int:
    """Look at some entries and remove them, except a transaction's from this stamp on.

    ``forgets``: also records whose COMMIT entry stays.
    """
    given: dict[str, int | str] = {
        "base": sql.base(log),
        "after": progress.after,
        "upto": upto,
        "keep_from": keep_from,
        "limit": STEP_ENTRIES,
        "forgets": forgets,
    }
    (last,) = db.execute(sql.LAST_OF_STEP, given).fetchone()
    if last is None:
        progress.has_ended = True
        return 0
    given["upto"] = last
    room, count, staying = STEP_ENTRIES, 0, []
    for place, kind, data in db.execute(sql.MARKERS, given).fetchall():
        if stays(db, log, kind, data):
            staying.append(place)
            continue
        rows, entries = remove_with(db, log, kind, data, room)
        room -= rows
        count += entries
        if room == 0:
            return count  # there may be more of them: the next step continues here
    progress.after = last
    given["staying"] = as_json(staying)
    if db.execute(sql.HAS_OLD_RECORDS, given).fetchone()[0]:
        count += db.execute(sql.REMOVE_OLD_RECORDS, given).rowcount
    return count + db.execute(sql.REMOVE, given).rowcount
