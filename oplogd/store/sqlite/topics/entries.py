"""Reads and writes of the entries of topics, each function one call on a connection.

Batches go in as JSON and come out as one string, as in ``log``.
"""

import bisect
import contextlib
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from oplogd.clock.ages import MAX_LEAD_MS, Present
from oplogd.errors import LogReplacedError, TopicNotFoundError
from oplogd.model.event_id import Mark
from oplogd.model.lease import Fence
from oplogd.model.message_id import stamp, unstamp
from oplogd.model.names import no_topic
from oplogd.store.numbers import begin_of
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.file.parts import as_json, parts
from oplogd.store.sqlite.leases import holding
from oplogd.store.sqlite.topics import statements as sql
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import (
    EntryKind,
    MessageBatch,
    Outcome,
    Placed,
    Refused,
    TopicEntry,
    dated_entry,
)

# Their data begins with the pointer and a space.
_WITH_POINTER = frozenset({EntryKind.DIRECT.value, EntryKind.PUBLISH.value})
_PLAIN = EntryKind.MESSAGE.value
# A larger time would overflow SQLite's integers as a stamp.
_MAX_MS = (1 << 46) - 1

# New entries, each log once: own time to live in ms, and data. ``Raw`` is JSON.
Groups = Sequence[tuple[int, Sequence[tuple[int | None, str | msgspec.Raw]]]]
# Characters or bytes of an entry given to SQLite outside of JSON if it is alone.
LARGE = 64 * 1024
# Offset and stamp of the first new entry in each log.
Firsts = dict[int, tuple[int, int]]


def append(
    db: sqlite3.Connection, batches: Sequence[MessageBatch], now: int, bounded: bool = False
) -> list[Outcome]:
    """Append the batches of existing topics whose fences hold, in one transaction.

    ``bounded``: topics over their bound in bytes count as deleted. Only for batches of one
    statement.
    """
    fences = {batch.fence for batch in batches if batch.fence is not None}
    if not fences:
        return _append(db, batches, (), now, bounded)
    with transaction(db):
        stale = fences - holding(db, fences)
        return _append(db, batches, stale, now, bounded)


def _append(
    db: sqlite3.Connection,
    batches: Sequence[MessageBatch],
    stale: Collection[Fence],
    now: int,
    bounded: bool,
) -> list[Outcome]:
    """Append the batches without one of these fences.

    It runs in the open transaction or in one of its own.
    """
    statements = list(_groups(batch for batch in batches if batch.fence not in stale))
    firsts: Firsts = {}
    needs_transaction = len(statements) > 1 and not db.in_transaction
    with transaction(db) if needs_transaction else contextlib.nullcontext():
        for groups in statements:
            firsts = place(db, EntryKind.MESSAGE, groups, now, bounded=bounded) | firsts
    return _outcomes(batches, stale, firsts)


def place(
    db: sqlite3.Connection, kind: EntryKind, groups: Groups, now: int, *, bounded: bool = False
) -> Firsts:
    """Append entries of one kind. Return the first of each log.

    It runs in the open transaction or in one of its own. Deleted topics get no entries.
    """
    groups, lone = take_lone(groups)
    body = as_json(groups)
    db.execute(sql.APPEND, (stamp(now, 0), body, kind.value, bounded, lone))
    placed = msgspec.json.decode(db.execute(sql.PLACING).fetchone()[0])
    return {log: (head + 1, first) for log, head, first in placed}


def _groups(batches: Iterable[MessageBatch]) -> Iterator[Groups]:
    """Divide messages into parts of one statement each."""
    messages = [(log, message) for log, messages, _ in batches for message in messages]
    for part in parts(messages, lambda each: len(each[1].data)):
        groups: dict[int, list[tuple[int | None, msgspec.Raw]]] = {}
        for log, (data, ttl) in part:
            own = None if ttl is None else ttl * 1000
            groups.setdefault(log, []).append((own, msgspec.Raw(data)))
        yield list(groups.items())


def take_lone(groups: Groups) -> tuple[Groups, str | None]:
    """Take out the data of the only entry if it is large, as a value of its own.

    SQLite needs sixteen times the memory of a text inside JSON.
    """
    if len(groups) == 1 and len(groups[0][1]) == 1:
        ((log, ((ttl, data),)),) = groups
        text = data if isinstance(data, str) else memoryview(data)
        if len(text) > LARGE:
            return [(log, [(ttl, "")])], text if isinstance(text, str) else str(text, "utf-8")
    return groups, None


def _outcomes(
    batches: Sequence[MessageBatch], stale: Collection[Fence], firsts: Firsts
) -> list[Outcome]:
    """Return the outcomes. ``firsts``: offset and stamp of the first message in each log.

    Offsets and stamps of one call ascend in steps of one.
    """
    outcomes: list[Outcome] = []
    for log, messages, fence in batches:
        if fence in stale:
            outcomes.append(Refused.STALE)
            continue
        if log not in firsts:
            outcomes.append(Refused.DELETED)
            continue
        offset, first = firsts[log]
        last = len(messages) - 1
        outcomes.append(Placed(mark_of(offset, first), mark_of(offset + last, first + last)))
        firsts[log] = offset + last + 1, first + last + 1
    return outcomes


def mark_of(offset: int, number: int) -> Mark:
    return Mark(offset, *unstamp(number))


def read(
    db: sqlite3.Connection, log: int, after: int, limit: int, at_ms: int | None, present: Present
) -> list[TopicEntry]:
    row = db.execute(sql.READ, _given(log, present) | {"after": after, "limit": limit}).fetchone()
    if row is None:
        raise deleted(log)
    lines, found_ms, is_of_this_log, written = row
    if at_ms is not None and (found_ms not in (None, at_ms) or not is_of_this_log):
        raise LogReplacedError(f"the entry of log {log} at offset {after} is another one")
    entries = []
    for line in lines.split("\n") if lines else ():
        offset, number, expires, kind, data = line.split(" ", 4)
        ms, sequence = unstamp(int(number))
        pointer = None
        if kind != _PLAIN and kind in _WITH_POINTER:  # most are plain
            first, data = data.split(" ", 1)
            pointer = int(first)
        entries.append(TopicEntry(int(offset), ms, kind, data, sequence, int(expires), pointer))
    return _dated(entries, written, present) if written or present.ages.lags else entries


def _dated(
    entries: Sequence[TopicEntry], written: str | None, present: Present
) -> list[TopicEntry]:
    """Add the times of writing to the entries whose stamps do not tell it.

    An entry ahead without such a time, of an agent of the version before, was written before the
    next one.
    """
    rows = [tuple(map(int, line.split(" "))) for line in written.split("\n")] if written else []
    ends = [offset for _, offset, _ in rows]
    dated = []
    for entry in entries:
        index = bisect.bisect_left(ends, entry.offset)
        written_ms = 0
        if index < len(rows):
            first, _, ms = rows[index]
            if entry.offset >= first or entry.ms > present.ms + MAX_LEAD_MS:
                written_ms = ms
        dated.append(dated_entry(entry, written_ms, present))
    return dated


def locate(
    db: sqlite3.Connection, log: int, ms: int, sequence: int, present: Present
) -> TopicBounds:
    wanted = stamp(min(ms, _MAX_MS), sequence)
    row = db.execute(sql.LOCATE, _given(log, present) | {"stamp": wanted}).fetchone()
    if row is None:
        raise deleted(log)
    front, head, at = mark_of(*row[0:2]), mark_of(*row[2:4]), mark_of(*row[4:6])
    repaired = db.execute(sql.REPAIRED).fetchall()
    return TopicBounds(front, head, at, present.ms, begin_of(log), row[6], repaired)


def raise_floor(db: sqlite3.Connection, log: int, present: Present) -> Mark:
    """Keep the entries now gone hidden, in the caller's transaction. Return the front."""
    front = locate(db, log, 0, 0, present).front
    floor = {"log": log, "floor": front.offset, "stamp": stamp(front.ms, front.sequence)}
    db.execute(sql.SET_FLOOR, floor)
    return front


def _given(log: int, present: Present) -> dict[str, int | str]:
    return age_statements.given(present) | {"log": log, "base": sql.base(log)}


def deleted(log: int) -> TopicNotFoundError:
    return no_topic(f"of log {log}")
