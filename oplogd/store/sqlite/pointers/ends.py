"""The steps to end pointers, each in the caller's transaction of SQLite.

A step has no effect if it raises an OplogError.
"""

import sqlite3
from collections.abc import Sequence

from oplogd.clock.ages import Present
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision, decided
from oplogd.model.transaction import Marker, encode_marker
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.parts import as_json, parts
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.pointers import rows
from oplogd.store.sqlite.pointers import statements as sql
from oplogd.store.sqlite.pointers.steps import append
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.statements import base
from oplogd.store.topics import EntryKind

# Pointers decided by one step of the keeper, and about the number of stored messages removed by it.
STEP_POINTERS = 500
STEP_STORED = 5000


def decide(
    step: SharedStep, logs: Sequence[int], pointer: int, decision: Decision
) -> dict[int, Mark]:
    found = [rows.find(step.db, log, pointer) for log in dict.fromkeys(logs)]
    for row in found:
        if row.report not in (None, decision):
            raise decided(pointer, row.report)
    marks = _end(step, [row for row in found if row.end is None], decision)
    for row in found:
        if row.end is not None:
            marks[row.log] = row.late or row.end
            if row.decision is Decision.TIMED_OUT and row.late is None:
                marks[row.log] = _end_late(step, row, row.end, decision)
    return marks


def time_out(step: SharedStep) -> int:
    """Decide some overdue pointers. Return their number."""
    overdue: list[tuple[int, int]] = []
    records = 0
    given = age_statements.ends(step.present) | {"limit": STEP_POINTERS}
    for log, pointer, stored in step.db.execute(sql.OVERDUE, given):
        records += stored
        if overdue and records > STEP_STORED:
            break
        overdue.append((log, pointer))
    found = [rows.find(step.db, *each) for each in overdue]
    _end(step, found, Decision.TIMED_OUT)
    return len(found)


def _end(
    step: SharedStep, ending: Sequence[rows.PointerRow], decision: Decision
) -> dict[int, Mark]:
    """Decide open pointers. Return the marks of the decisions by log."""
    db, present, decisions = step
    by_log: dict[int, list[rows.PointerRow]] = {}
    for row in ending:
        by_log.setdefault(row.log, []).append(row)
    body = [
        (log, [(None, encode_marker(Marker(str(row.pointer)))) for row in each])
        for log, each in by_log.items()
    ]
    placed = topic_entries.place(db, decision.kind, body, present.ms)
    marks = {}
    for log, each in by_log.items():
        offset, first = placed[log]
        for number, row in enumerate(each):
            marks[log] = topic_entries.mark_of(offset + number, first + number)
            row = rows.registered(row, present, 0, has_entries=False)
            row = row._replace(decision=decision, end=marks[log])
            rows.save(db, row)
            if row.records:
                rows.remove_stored(db, log, row.pointer, row.published)
    decisions.add(decision, len(ending))
    return marks


def _end_late(step: SharedStep, row: rows.PointerRow, mark: Mark, decision: Decision) -> Mark:
    """Carry out a report about a pointer after its time-out. Return the mark for its answer.

    ``mark``: of the time-out.
    """
    db, present, decisions = step
    if decision is Decision.ABORTED:
        rows.save(db, row._replace(decision=decision))
    elif decision is Decision.COMMITTED:
        mark = _publish_late(db, row, present) or mark
        rows.save(db, row._replace(late=mark))
    decisions.add(decision, decision is not Decision.TIMED_OUT)
    return mark


def _publish_late(db: sqlite3.Connection, row: rows.PointerRow, present: Present) -> Mark | None:
    """Append the readable messages of a pointer once more. Return the mark of the last one."""
    log, pointer = row.log, row.pointer
    front = topic_entries.locate(db, log, 0, 0, present).front
    given = age_statements.given(present) | {"log": log, "pointer": pointer}
    place = base(log) + front.offset
    standing = db.execute(sql.STANDING, given | {"front": place}).fetchall()
    mark = None
    for some in parts(standing, lambda entry: entry[1]):  # the messages of all may be gigabytes
        places = as_json([each for each, _ in some])
        found = db.execute(sql.MESSAGES, given | {"places": places}).fetchall()
        for part in parts(found, lambda message: len(message[1])):
            contents = [(ttl, data) for ttl, data, *_ in part]
            *_, mark = append(db, EntryKind.LATE, log, pointer, contents, present.ms)
    return mark
