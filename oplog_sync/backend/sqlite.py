"""Read a SQLite store while agents write to it.

Each chunk of rows is a statement of its own: a reader keeps no snapshot open while it waits for
Spark, so SQLite can checkpoint its write-ahead log meanwhile.
"""

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oplog_sync.backend.base import NEW_LOG, NewLog, Range, StoreRow, Wanted, split
from oplogd.clock import SYSTEM
from oplogd.clock.guard import GuardedClock
from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.store import LogBounds
from oplogd.store.sqlite import (
    APPLICATION_ID,
    DEFAULT_CAP_BYTES,
    MIGRATIONS,
    SqliteStore,
    read_bounds,
)
from oplogd.store.sqlite.file.connection import BUSY_SECONDS
from oplogd.store.sqlite.log import clock_rows

_CHUNK = 10_000

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
    "ms_from": "ts >= :ms_from",
    "ms_to": "ts <= :ms_to",
    "offset_from": "n >= :offset_from",
    "offset_to": "n <= :offset_to",
    "timestamp_from": "json_extract(data, '$.timestamp') >= :timestamp_from",
    "timestamp_to": "json_extract(data, '$.timestamp') <= :timestamp_to",
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
            clock = GuardedClock(SYSTEM)
            clock.begin(clock_rows.find(db), is_logged=False)
            return read_bounds(db, offset, dataclasses.replace(SYSTEM, now_ms=clock.now_ms))

    def settle(self) -> None:
        """Do nothing: SQLite changes states and log in one transaction."""

    async def corrector(self, new: NewLog = NEW_LOG) -> SqliteStore:
        store = SqliteStore(self._path, new_bytes=new.cap_bytes or DEFAULT_CAP_BYTES)
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
            for after, upto in split(part, _CHUNK):
                rows = db.execute(sql, given | {"after": after, "upto": upto})
                if chunk := list(map(StoreRow._make, rows)):
                    yield chunk

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


def _given(wanted: Wanted) -> dict[str, Any]:
    """Return the conditions in ``wanted``, by the names in _CONDITIONS."""
    lists = (None if each is None else json.dumps([*each]) for each in wanted[:2])
    values = zip(_CONDITIONS, (*lists, *wanted.ms, *wanted.offset, *wanted.timestamp), strict=True)
    return {name: value for name, value in values if value is not None}
