"""Entries leave at the front of a topic with too many bytes, some at a time.

The front stops before an entry that readers of an undecided or just decided transaction or pointer
need. It passes the records of a transaction: they stay until its COMMIT entry leaves, since
committed readers read them there. It passes the newest entry only on request.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from oplogd.clock.ages import Present
from oplogd.model.message_id import SEQUENCE_BITS
from oplogd.model.names import TopicName
from oplogd.model.pointer import Decision, decided_by
from oplogd.model.transaction import decode_marker
from oplogd.store.bounds import RECORDS_FILL, just_decided
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.pointers import statements as pointer_statements
from oplogd.store.sqlite.topics import bound_statements as sql
from oplogd.store.sqlite.topics import statements as topics_sql
from oplogd.store.sqlite.upkeep import sweep
from oplogd.store.topics import DECIDED_MS, EntryKind

# Entries and bytes of one step: some ms.
STEP_ENTRIES = 500
STEP_BYTES = 2 << 20
COUNTED_ENTRIES = 2_000
COUNTED_BYTES = 4 << 20
_PAGE = 50

_DECISIONS = frozenset({EntryKind.COMMIT.value, EntryKind.ABORT.value})


class SizedTopic(NamedTuple):
    """A row of ``topic_sizes`` and of ``topics``."""

    log: int
    size: int
    max_bytes: int | None
    swept: int
    counted: int
    floor: int
    head: int
    name: TopicName


class LeavingStep(NamedTuple):
    """``removed`` entries with ``size`` bytes left.

    ``held_by``: why no further ones may leave now. None: they may. ``next_stamp``: of the oldest
    entry left, if the step stopped at it. ``spare``: bytes of the newest entry, if the step stopped
    there only because it is the newest.
    """

    removed: int
    size: int
    held_by: str | None
    next_stamp: int | None
    spare: int = 0


NOTHING = LeavingStep(0, 0, None, None)


class _Entry(NamedTuple):
    offset: int
    stamp: int
    kind: str
    size: int
    pointer: int | None
    data: str | None
    is_record: int


def find(db: sqlite3.Connection, log: int) -> SizedTopic | None:
    """Return a topic, unless it is deleted."""
    row = db.execute(sql.FIND, (log,)).fetchone()
    if row is None:
        return None
    size, max_bytes, swept, counted, floor, head, *name = row
    return SizedTopic(log, size, max_bytes, swept, counted, floor, head, TopicName(*name))


def find_counted(db: sqlite3.Connection, log: int) -> SizedTopic | None:
    """Count some entries of a topic, then return it, in the caller's transaction."""
    topic = find(db, log)
    if topic is None or topic.counted >= topic.head:
        return topic
    given = {"base": topics_sql.base(log), "after": topic.counted, "upto": topic.head}
    size, last = 0, topic.head
    found = db.execute(sql.NEW_SIZES, given | {"limit": COUNTED_ENTRIES})
    for number, (offset, own) in enumerate(found, 1):
        size += own
        if size > COUNTED_BYTES or number == COUNTED_ENTRIES:
            last = offset
            break
    db.execute(sql.COUNTED, (size, last, log))
    return topic._replace(size=topic.size + size, counted=last)


def look_again(db: sqlite3.Connection, logs: Sequence[int]) -> None:
    """Note the records of a transaction in these logs as not needed any more."""
    db.execute(sql.LOOK_AGAIN, (as_json(logs),))


def leave(
    db: sqlite3.Connection,
    topic: SizedTopic,
    excess: int,
    upto_stamp: int,
    present: Present,
    *,
    newest: bool = False,
) -> LeavingStep:
    """Remove the oldest entries until ``excess`` bytes have left, in the caller's transaction.

    Raise the floor first. Only counted entries leave. ``upto_stamp``: younger ones stay.
    ``newest``: the newest entry may leave, too.
    """
    return _Leaving(db, topic, present, newest=newest).run(excess, upto_stamp)


class _Leaving:
    def __init__(
        self, db: sqlite3.Connection, topic: SizedTopic, present: Present, *, newest: bool
    ) -> None:
        self._db = db
        self._topic = topic
        self._present = present
        # The newest entry to stay.
        self._last = None if newest else topic.head
        self._floor, self._floor_stamp = topic.floor, 0
        self._swept = topic.swept
        self._removed = self._size = 0
        self._room = STEP_ENTRIES
        self._held_by: str | None = None
        self._next_stamp: int | None = None
        self._spare = 0
        # Why each pointer is needed. None: it is not.
        self._pointers: dict[int, str | None] = {}

    def run(self, excess: int, upto_stamp: int) -> LeavingStep:
        while self._room > 0 and self._size < min(excess, STEP_BYTES):
            entries = self._look()
            if not entries and self._topic.counted >= self._topic.head:
                self._held_by = RECORDS_FILL
            if not entries or not self._take(entries, excess, upto_stamp):
                break
        topic = self._topic
        has_moved = self._floor != topic.floor
        if has_moved or self._removed:
            self._db.execute(sql.NEXT_TURN, (self._removed,))
        if has_moved:
            floor = {"log": topic.log, "floor": self._floor, "stamp": self._floor_stamp}
            self._db.execute(topics_sql.SET_FLOOR, floor)
            self._db.execute(sql.SET_GONE, (self._floor, topic.log))
        if self._swept != topic.swept:
            self._db.execute(sql.SET_SWEPT, (self._swept, topic.log))
        return LeavingStep(self._removed, self._size, self._held_by, self._next_stamp, self._spare)

    def _look(self) -> list[_Entry]:
        given = {
            "base": self._base,
            "after": self._swept,
            "head": self._topic.counted,
            "limit": min(_PAGE, self._room),
        }
        return [*map(_Entry._make, self._db.execute(sql.LOOK, given).fetchall())]

    def _take(self, entries: Sequence[_Entry], excess: int, upto_stamp: int) -> bool:
        """Remove the first ones of some entries. Return whether the next ones may leave."""
        gone: list[int] = []
        goes_on = True
        for entry in entries:
            if self._size >= excess or not self._may_pass(entry, upto_stamp):
                goes_on = False
                break
            self._room -= 1
            was_passed = entry.offset <= self._topic.floor
            if not entry.is_record and not (
                (was_passed and self._reason(entry))
                or (entry.data and sweep.stays(self._db, self._topic.log, entry.kind, entry.data))
            ):
                if not self._remove_with(entry):
                    goes_on = False  # the next step continues here
                    break
                gone.append(entry.offset)
                self._size += entry.size
            self._swept = entry.offset
        if gone:
            self._db.execute(sql.REMOVE, {"base": self._base, "offsets": as_json(gone)})
            self._removed += len(gone)
        return goes_on

    def _may_pass(self, entry: _Entry, upto_stamp: int) -> bool:
        """Return whether the front may pass an entry. If so, it has passed the entry."""
        if entry.offset <= self._floor:
            return True
        if entry.stamp > upto_stamp:
            self._next_stamp = entry.stamp
            return False
        self._held_by = self._reason(entry)
        if self._held_by is None and entry.offset == self._last:
            self._held_by, self._next_stamp = RECORDS_FILL, entry.stamp
            self._spare = 0 if entry.is_record else entry.size + self._size_with(entry)
        if self._held_by is not None:
            return False
        self._floor, self._floor_stamp = entry.offset, entry.stamp
        return True

    def _reason(self, entry: _Entry) -> str | None:
        """Return why readers may need an entry, None if they do not."""
        if entry.pointer is not None:
            if entry.pointer not in self._pointers:
                self._pointers[entry.pointer] = self._reason_of_pointer(entry.pointer)
            return self._pointers[entry.pointer]
        if (
            entry.kind in _DECISIONS
            and entry.data is not None
            and self._is_recent(entry.offset, entry.stamp)
        ):
            of = "pointer" if decided_by(entry.kind, entry.data) else "transaction"
            return just_decided(of, decode_marker(entry.data).txn)
        return None

    def _reason_of_pointer(self, pointer: int) -> str | None:
        given = (self._topic.log, pointer)
        found = self._db.execute(sql.END_OF_POINTER, given).fetchone()
        state, offset, stamp = found or (None, 0, 0)
        if state == pointer_statements.OPEN:
            return f"pointer {pointer} is open"
        if state == Decision.COMMITTED and self._is_recent(offset, stamp):
            return just_decided("pointer", pointer)
        return None

    def _is_recent(self, offset: int, stamp: int) -> bool:
        ms, given = stamp >> SEQUENCE_BITS, (self._topic.log, offset)
        first, written_ms = self._db.execute(sql.WRITTEN, given).fetchone() or (offset + 1, 0)
        return self._present.is_recent(ms, written_ms if first <= offset else 0, DECIDED_MS)

    def _size_with(self, entry: _Entry) -> int:
        """Return the bytes of the records of a COMMIT entry."""
        is_commit = entry.kind == EntryKind.COMMIT
        if entry.data is None or not is_commit or decided_by(entry.kind, entry.data):
            return 0
        given = (int(decode_marker(entry.data).txn), self._topic.log)
        size: int = self._db.execute(sql.SIZE_OF_RECORDS, given).fetchone()[0]
        return size

    def _remove_with(self, entry: _Entry) -> bool:
        """Remove the rows of an entry. Return whether none is left."""
        if entry.data is None:
            return True
        db, log, limit = self._db, self._topic.log, max(self._room, 1)
        before = _size(db, log)
        count, entries = sweep.remove_with(db, log, entry.kind, entry.data, limit)
        self._removed += entries
        self._size += before - _size(db, log)
        self._room -= count
        return count < limit

    @property
    def _base(self) -> int:
        return topics_sql.base(self._topic.log)


def _size(db: sqlite3.Connection, log: int) -> int:
    size: int = db.execute(sql.SIZE, (log,)).fetchone()[0]
    return size
