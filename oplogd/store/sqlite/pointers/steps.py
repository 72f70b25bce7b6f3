"""The steps of pointers, each in the caller's transaction of SQLite.

A step has no effect if it raises an OplogError.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import next_write_stamp, stamp
from oplogd.model.pointer import (
    Decision,
    Voided,
    encode_voided,
    nothing_stored,
    stored_before,
    too_late,
    too_many_stored,
)
from oplogd.model.transaction import Marker, decode_marker, encode_marker
from oplogd.store.pointers import Marks, runs_of
from oplogd.store.sqlite.file.parts import as_json, parts
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.pointers import rows
from oplogd.store.sqlite.pointers import statements as sql
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.statements import base
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import RecordLimits

# Runs named by one VOID entry.
RUNS_PER_ENTRY = 5000

decode_numbers = msgspec.json.Decoder(list[int]).decode


def publish(
    step: SharedStep, log: int, pointer: int, messages: Sequence[Message], timeout_ms: int
) -> Marks:
    db, present, _ = step
    row = rows.find_open(db, log, pointer)
    if row.last > row.published:
        raise stored_before(pointer)
    marks = Marks()
    for part in parts(messages, _size):
        contents = [(_ms(ttl), f"{pointer} {data.decode()}") for data, ttl in part]
        for mark in append(db, EntryKind.DIRECT, log, pointer, contents, present.ms):
            marks.append(mark)
    opened = rows.registered(row, present, timeout_ms, has_entries=True)
    if opened != row:
        rows.save(db, opened)
    return marks


def store(
    step: SharedStep,
    log: int,
    pointer: int,
    messages: Sequence[Message],
    timeout_ms: int,
    limits: RecordLimits,
) -> None:
    db, present, _ = step
    row = rows.find_open(db, log, pointer)
    records = row.records + len(messages)
    size = row.octets + sum(len(data) for data, _ in messages)
    if records > limits.records or size > limits.bytes:
        raise too_many_stored(pointer, *limits)
    last = row.last
    for part in parts(messages, _size):
        lines = []
        for data, ttl in part:
            last = next_write_stamp(last, present.ms)
            lines.append((last, _ms(ttl), data.decode()))
        if len(part) == 1 and _size(part[0]) > topic_entries.LARGE:
            db.execute(sql.STORE_LARGE, (log, pointer, *lines[0]))
        else:
            db.execute(sql.STORE, {"log": log, "pointer": pointer, "body": as_json(lines)})
    row = rows.registered(row, present, timeout_ms, has_entries=False)
    rows.save(db, row._replace(last=last, records=records, octets=size))


def publish_stored(step: SharedStep, log: int, pointer: int, timeout_ms: int) -> Mark | None:
    db, present, _ = step
    row = rows.find(db, log, pointer)
    is_new = row.last > row.published
    if not is_new and row.publish is not None:
        return row.publish
    rows.require_open(row)
    if not row.last:
        return None
    if not is_new:
        raise nothing_stored(pointer)
    marker = encode_marker(Marker(str(pointer), row.records, row.last, row.published))
    contents = [(None, f"{pointer} {marker}")]
    (mark,) = append(db, EntryKind.PUBLISH, log, pointer, contents, present.ms)
    row = rows.registered(row, present, timeout_ms, has_entries=True)
    rows.save(db, row._replace(published=row.last, records=0, octets=0, publish=mark))
    return mark


def rollback(
    step: SharedStep, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool
) -> Mark | None:
    db = step.db
    row = rows.find(db, log, pointer)
    is_late = row.report is Decision.COMMITTED
    if is_late and not force:
        raise too_late(pointer)
    if row.begun is None:
        return None
    if row.decision is Decision.TIMED_OUT and not is_late:
        row = row._replace(decision=Decision.ABORTED)
        rows.save(db, row)
        step.decisions.add(Decision.ABORTED)
    given: dict[str, object] = {"log": log, "pointer": pointer}
    some = stamps is not None
    if some:
        given["stamps"] = as_json(stamps)
    found, published, markers = db.execute(sql.entries(given=some), given).fetchone()
    places = decode_numbers(found)
    db.execute(sql.remove_entries(given=some), given)
    if some:
        for data in markers.split("\n") if markers else ():
            marker = decode_marker(data.split(" ", 1)[1])
            rows.remove_stored(db, log, pointer, marker.after, marker.last)
        at = row.publish
        if at is not None and stamp(at.ms, at.sequence) in decode_numbers(published):
            rows.save(db, row._replace(publish=None))
    else:
        rows.remove_stored(db, log, pointer, 0)
        rows.save(db, row._replace(published=row.last, records=0, octets=0, publish=None))
    if is_late and places:
        db.execute(sql.PURGE, {"log": log, "place": max(places)})
    return void(db, log, pointer, places, step.present.ms, is_gap=is_late)


def append(
    db: sqlite3.Connection,
    kind: EntryKind,
    log: int,
    pointer: int,
    contents: Sequence[tuple[int | None, str]],
    now: int,
) -> list[Mark]:
    """Append entries of a pointer: own time to live in ms, and data. Return their marks."""
    placed = topic_entries.place(db, kind, [(log, contents)], now)
    offset, first = placed[log]
    count = len(contents)
    if kind is not EntryKind.VOID:
        place = base(log) + offset
        given = {"log": log, "pointer": pointer, "first": place, "count": count}
        db.execute(sql.ADD_ENTRIES, given)
    return [topic_entries.mark_of(offset + n, first + n) for n in range(count)]


def void(
    db: sqlite3.Connection,
    log: int,
    pointer: int,
    places: Sequence[int],
    now: int,
    *,
    is_gap: bool = False,
) -> Mark | None:
    """Void the entries at these places. Return the mark of the last VOID entry that names them."""
    for part in parts(places, lambda _: 0):
        db.execute(sql.VOID, (as_json(part),))
    runs = runs_of([place - base(log) for place in places])
    mark = None
    for start in range(0, len(runs), RUNS_PER_ENTRY):
        voided = Voided(str(pointer), runs[start : start + RUNS_PER_ENTRY], is_gap)
        (mark,) = append(db, EntryKind.VOID, log, pointer, [(None, encode_voided(voided))], now)
    return mark


def _size(message: Message) -> int:
    return len(message.data)


def _ms(ttl: int | None) -> int | None:
    return None if ttl is None else ttl * 1000
