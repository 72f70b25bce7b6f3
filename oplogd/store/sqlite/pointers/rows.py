"""The rows of pointers, each function one or two statements in the caller's transaction."""

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

from oplogd.clock.ages import Present
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import stamp, unstamp
from oplogd.model.pointer import DEFAULT_RULES, Decision, PointerRules, decided, switched_off
from oplogd.model.transaction import decode_marker
from oplogd.store.pointers import FoundPointer, OpenPointer, PointerKey, TimedOutPointer
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.pointers import statements as sql
from oplogd.store.sqlite.topics import statements as topic_statements
from oplogd.store.sqlite.topics.entries import deleted, mark_of
from oplogd.store.sqlite.topics.statements import MAX_STAMP
from oplogd.store.topics import EntryKind, TopicEntry, TopicRecord
from oplogd.store.transactions import OpenStats

# Before all keys.
_FIRST = PointerKey(-1, -1, -1)


class PointerRow(NamedTuple):
    """A pointer in a topic: see the table ``pointers``.

    ``decision``: None while it is open. ``begun``: None if there is no row yet. ``publish``,
    ``end`` and ``late``: marks of the last PUBLISH entry, of the decision, and of the last entry of
    a commit reported after the time-out. ``rules``: of the topic.
    """

    log: int
    pointer: int
    decision: Decision | None = None
    begun: int | None = None
    expires: int = 0
    has_entries: int = 0
    last: int = 0
    published: int = 0
    records: int = 0
    octets: int = 0
    publish: Mark | None = None
    end: Mark | None = None
    late: Mark | None = None
    rules: PointerRules = DEFAULT_RULES

    @property
    def report(self) -> Decision | None:
        """The decision reported by the owner: not the time-out."""
        if self.late is not None:
            return Decision.COMMITTED
        return None if self.decision is Decision.TIMED_OUT else self.decision


def find(db: sqlite3.Connection, log: int, pointer: int) -> PointerRow:
    """Return the row of a pointer. Raises TopicNotFoundError."""
    found = db.execute(sql.FIND, {"log": log, "pointer": pointer}).fetchone()
    if found is None:
        raise deleted(log)
    is_on, timeout, state, *numbers = found[:10]
    rules = PointerRules(bool(is_on), timeout)
    if state is None:
        return PointerRow(log, pointer, rules=rules)
    marks = [optional_mark(*found[at : at + 2]) for at in (10, 12, 14)]
    return PointerRow._make(
        (
            log,
            pointer,
            None if state == sql.OPEN else _decided(pointer, state),
            *numbers,
            *marks,
            rules,
        )
    )


def find_open(db: sqlite3.Connection, log: int, pointer: int) -> PointerRow:
    """Return the row of an open pointer. Raises TopicNotFoundError and TransactionConflictError."""
    row = find(db, log, pointer)
    require_open(row)
    return row


def require_open(row: PointerRow) -> None:
    """Raise TransactionConflictError unless messages may go in under this pointer."""
    if row.decision is not None:
        raise decided(row.pointer, row.decision)
    if not row.rules.is_on:
        raise switched_off()


def save(db: sqlite3.Connection, row: PointerRow) -> None:
    state = sql.OPEN if row.decision is None else row.decision.value
    marks = [n for each in (row.publish, row.end, row.late) for n in _numbers(each)]
    db.execute(sql.SAVE, (row.log, row.pointer, state, *row[3:10], *marks))


def registered(
    row: PointerRow, present: Present, timeout_ms: int, *, has_entries: bool
) -> PointerRow:
    """Return the row with its time-out, which runs from the first entry on if there is one.

    ``timeout_ms``: the agent's.
    """
    if row.has_entries:
        return row
    begun = present.ms if row.begun is None else present.begun(row.begun)
    expires = present.ms + row.rules.timeout_ms(timeout_ms)
    return row._replace(begun=begun, expires=expires, has_entries=has_entries)


def decisions(db: sqlite3.Connection, log: int, pointers: Collection[int]) -> dict[int, Decision]:
    if not db.execute(sql.EXISTS, (log,)).fetchone()[0]:
        raise deleted(log)
    given = as_json(list(pointers))
    found = db.execute(sql.DECISIONS, (log, given)).fetchall()
    return {pointer: _decided(pointer, state) for pointer, state in found}


def timed_out(db: sqlite3.Connection, log: int, limit: int) -> list[TimedOutPointer]:
    if not db.execute(sql.EXISTS, (log,)).fetchone()[0]:
        raise deleted(log)
    return [
        TimedOutPointer(pointer, begun, unstamp(end)[0])
        for pointer, begun, end in db.execute(sql.TIMED_OUT, {"log": log, "limit": limit})
    ]


def select(
    db: sqlite3.Connection, log: int, limit: int, after: PointerKey | None = None
) -> list[OpenPointer]:
    if not db.execute(sql.EXISTS, (log,)).fetchone()[0]:
        raise deleted(log)
    found = _select(db, sql.SELECT, limit, (after or _FIRST)._replace(log=log))
    return [each.open for each in found]


def select_all(db: sqlite3.Connection, limit: int, after: PointerKey | None) -> list[FoundPointer]:
    return _select(db, sql.SELECT_ALL, limit, after or _FIRST)


def _select(
    db: sqlite3.Connection, statement: str, limit: int, after: PointerKey
) -> list[FoundPointer]:
    given = {"limit": limit, "begun": after.begun_ms, "after": after.pointer, "log": after.log}
    return [
        FoundPointer(log, OpenPointer(pointer, begun, expires, bool(has_entries)))
        for log, pointer, begun, expires, has_entries in db.execute(statement, given)
    ]


def stats(db: sqlite3.Connection) -> OpenStats:
    return OpenStats(*db.execute(sql.STATS).fetchone())


def remove_stored(
    db: sqlite3.Connection, log: int, pointer: int, after: int, last: int = MAX_STAMP
) -> None:
    """Remove messages with write stamps past ``after``, up to ``last``."""
    db.execute(sql.REMOVE_STORED, {"log": log, "pointer": pointer, "after": after, "last": last})


def optional_mark(offset: int | None, number: int | None) -> Mark | None:
    """Return the mark with this offset and stamp, None if there is none."""
    return None if offset is None or number is None else mark_of(offset, number)


def expand(
    db: sqlite3.Connection, log: int, entry: TopicEntry, after: int, limit: int, present: Present
) -> list[TopicRecord]:
    """Do ``TopicLog.expand`` for a COMMIT entry or a PUBLISH entry."""
    marker = decode_marker(entry.data)
    is_publish = entry.event == EntryKind.PUBLISH
    given = {
        "log": log,
        "txn": int(marker.txn),
        "ms": entry.written_ms or entry.ms,
        "after": max(after, marker.after) if is_publish else after,
        "last": marker.last,
        "limit": limit,
        "now": present.ms,
    }
    statement = sql.EXPAND if is_publish else topic_statements.EXPAND
    row = db.execute(statement, given).fetchone()
    if row is None:
        raise deleted(log)
    records = []
    for line in row[0].split("\n") if row[0] else ():
        number, expires, data = line.split(" ", 2)
        records.append(TopicRecord(int(number), data, int(expires)))
    return records


def _decided(pointer: int, state: str) -> Decision:
    try:
        return Decision(state)
    except ValueError as error:
        raise StoreUnavailableError(
            f"the row of pointer {pointer} is damaged, restore a sound copy: {error}"
        ) from None


def _numbers(mark: Mark | None) -> tuple[int | None, int | None]:
    return (None, None) if mark is None else (mark.offset, stamp(mark.ms, mark.sequence))
