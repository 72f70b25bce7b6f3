"""Read a SQLite store while agents write to it.

Each chunk of rows is a statement of its own: a reader keeps no snapshot open while it waits for
Spark, so SQLite can checkpoint its write-ahead log meanwhile.
"""

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oplog_sync.backend.base import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    MOST_POINTERS,
    NEW_LOG,
    NewLog,
    OpenTopic,
    Range,
    StoreRow,
    Wanted,
    split,
)
from oplogd.clock import SYSTEM
from oplogd.clock.guard import GuardedClock
from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.names import TopicName, no_topic
from oplogd.model.pointer import Decision
from oplogd.store import LogBounds
from oplogd.store.pointers import OpenPointer
from oplogd.store.sqlite import (
    APPLICATION_ID,
    DEFAULT_CAP_BYTES,
    MIGRATIONS,
    SqliteStore,
    find_identity,
    read_bounds,
    seek,
)
from oplogd.store.sqlite.file.connection import BUSY_SECONDS
from oplogd.store.sqlite.log import clock_rows
from oplogd.store.sqlite.pointers import rows as pointer_rows
from oplogd.store.sqlite.topics import catalogue
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import TopicEntry, TopicRecord

# Rows between two looks at the size of a chunk: together at most about CHUNK_BYTES.
_FETCHED = 32

_STATE_BOUNDS = "SELECT (SELECT min(id) FROM states), (SELECT max(id) FROM states)"
_STATES = """
    SELECT key, iif(deleted, 'delete', 'insert') AS event, n, ts, data FROM states
    WHERE id > :after AND id <= :upto ORDER BY id
"""
_STATES_OF = """
    SELECT key, iif(deleted, 'delete', 'insert') AS event, n, ts, data FROM states
    WHERE key IN (SELECT value FROM json_each(?))
"""
_OPERATIONS = """
    SELECT key, event, seq AS n, ts, data FROM ops WHERE seq > :after AND seq <= :upto ORDER BY seq
"""
# Only the needed conditions are added: each condition costs time for each of millions of rows.
_CONDITIONS = {
    "types": "substr(key, 1, instr(key, '/') - 1) IN (SELECT value FROM json_each(:types))",
    "events": "event IN (SELECT value FROM json_each(:events))",
    "parents": """EXISTS (
        SELECT 1 FROM json_each(data, '$.parents') AS has
        WHERE has.value IN (SELECT value FROM json_each(:parents))
    )""",
    "ms_from": "ts >= :ms_from",
    "ms_to": "ts <= :ms_to",
    "offset_from": "n >= :offset_from",
    "offset_to": "n <= :offset_to",
}


class SqliteBackend:
    needs_local_master = True
    writers_wait = True

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # Spark's workers run in other folders

    @property
    def name(self) -> str:
        return str(self._path)

    def exists(self) -> bool:
        return self._path.exists()

    def check(self) -> None:
        with self._connection():
            pass

    def state_count(self) -> int:
        """Count in no time: the states and those that were purged since the oldest one."""
        with self._connection() as db:
            first, last = db.execute(_STATE_BOUNDS).fetchone()
        return last - first + 1 if first is not None else 0

    def state_ranges(self, rows: int) -> list[Range]:
        with self._connection() as db:
            first, last = db.execute(_STATE_BOUNDS).fetchone()
        return split((first - 1, last), rows) if first is not None else []

    def states(self, part: Range, wanted: Wanted) -> Iterator[list[StoreRow]]:
        return self._chunks(_STATES, part, wanted)

    def find(self, keys: Sequence[str]) -> list[StoreRow]:
        with self._connection() as db:
            return list(map(StoreRow._make, db.execute(_STATES_OF, (json.dumps([*keys]),))))

    def operations(self, part: Range, wanted: Wanted) -> Iterator[list[StoreRow]]:
        after, upto = part
        offset_from, offset_to = wanted.offset
        after = after if offset_from is None else max(after, offset_from - 1)
        upto = upto if offset_to is None else min(upto, offset_to)
        return self._chunks(_OPERATIONS, (after, upto), wanted)

    def locate(self, offset: int) -> LogBounds:
        with self._connection() as db:
            clock = _clock(db)
            return read_bounds(db, offset, dataclasses.replace(SYSTEM, now_ms=clock.now_ms))

    @contextlib.asynccontextmanager
    async def topic(self, name: TopicName) -> AsyncIterator[OpenTopic]:
        with self._connection() as db:
            found = catalogue.find(db, name)
            if found is None:
                raise no_topic(name)
            log = found.log

            async def open_pointers() -> list[OpenPointer]:
                return pointer_rows.select(db, log, MOST_POINTERS)

            yield OpenTopic(FileTopicLog(db, log, _clock(db)), open_pointers, find_identity(db))

    def seek(self, ms: int) -> Mark:
        with self._connection() as db:
            return seek(db, ms)

    def settle(self) -> None:
        """Do nothing: SQLite changes states and log in one transaction."""

    async def corrector(self, new: NewLog = NEW_LOG) -> SqliteStore:
        cap_bytes = new.cap_bytes or DEFAULT_CAP_BYTES
        store = SqliteStore(self._path, new_bytes=cap_bytes, small_cache=True)
        try:
            await store.open()
        except BaseException:
            await store.close()
            raise
        return store

    def _chunks(self, sql: str, part: Range, wanted: Wanted) -> Iterator[list[StoreRow]]:
        given = _given(wanted)
        if given:
            sql = f"SELECT * FROM ({sql}) WHERE {' AND '.join(_CONDITIONS[name] for name in given)}"
        with self._connection() as db:
            for after, upto in split(part, CHUNK_ROWS):
                rows = db.execute(sql, given | {"after": after, "upto": upto})
                yield from _chunks(rows)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if not self._path.exists():
            raise StoreError(f"store {self._path}: the file does not exist")
        try:
            uri = f"file:{quote(str(self._path))}?mode=rw"
            opened = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            with contextlib.closing(opened) as db:
                db.execute("PRAGMA query_only = ON")
                self._check(db)
                yield db
        except sqlite3.Error as error:
            fault = f"store {self._path}: it cannot be read: {error}"
            raise StoreUnavailableError(fault) from error

    def _check(self, db: sqlite3.Connection) -> None:
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(
                f"store {self._path}: this file is not an oplog store; give --store another path"
            )
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != len(MIGRATIONS):
            raise StoreError(
                f"store {self._path}: its schema has version {version}, but this oplog-sync reads "
                f"{len(MIGRATIONS)}; use the oplog-sync that belongs to the agent"
            )


def _chunks(cursor: sqlite3.Cursor) -> Iterator[list[StoreRow]]:
    chunk: list[StoreRow] = []
    size = 0
    while found := cursor.fetchmany(_FETCHED):
        rows = list(map(StoreRow._make, found))
        chunk += rows
        size += sum([len(row.data) for row in rows])
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class FileTopicLog:
    """See ``TopicLog``. Each call is a statement of its own."""

    def __init__(self, db: sqlite3.Connection, log: int, clock: GuardedClock) -> None:
        self._db = db
        self._log = log
        self._present = clock.present

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        return topic_entries.read(self._db, self._log, after, limit, at_ms, self._present())

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        return topic_entries.locate(self._db, self._log, ms, sequence, self._present())

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        return pointer_rows.expand(self._db, self._log, entry, after, limit, self._present())

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        return pointer_rows.decisions(self._db, self._log, pointers)


def _clock(db: sqlite3.Connection) -> GuardedClock:
    clock = GuardedClock(SYSTEM)
    clock.begin(clock_rows.find(db), is_logged=False)
    return clock


def _given(wanted: Wanted) -> dict[str, Any]:
    """Return the conditions in ``wanted``, by the names in _CONDITIONS."""
    lists = (None if each is None else json.dumps([*each]) for each in wanted[:3])
    values = zip(_CONDITIONS, (*lists, *wanted.ms, *wanted.offset), strict=True)
    return {name: value for name, value in values if value is not None}
