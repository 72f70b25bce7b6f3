"""Look-ups of objects among the states of the embedded store, by the index of their keys."""

import sqlite3
from collections.abc import Sequence

from oplogd.model.event_id import Mark
from oplogd.store.base import decode_stored
from oplogd.store.objects import ObjectsPage, ObjectState, Selection, Span, keys_of, spans_of
from oplogd.store.sqlite.file.pool import ConnectionPool
from oplogd.store.sqlite.file.template import READ_CHARACTERS

_FIND = "SELECT key, n, ts, deleted, data FROM states WHERE key = ?"
# Every blob is greater than every text.
_NO_END = b""
_NEXT = "SELECT id FROM states WHERE key > {after} AND key < :before ORDER BY key LIMIT 1"
# A read steps from key to key and stops at its bound, so it does not touch later states.
_SPAN = f"""
    WITH RECURSIVE step (key, n, ts, deleted, data, size) AS (
        SELECT key, n, ts, deleted, data, length(data) FROM states
        WHERE id = ({_NEXT.format(after=":after")})
        UNION ALL
        SELECT s.key, s.n, s.ts, s.deleted, s.data, size + length(s.data)
        FROM step JOIN states AS s ON s.id = ({_NEXT.format(after="step.key")})
        WHERE size < :characters
        LIMIT :limit
    )
    SELECT key, n, ts, deleted, data FROM step
"""

_Row = tuple[str, int, int, int, str]


class SqliteObjects:
    """See ``Objects``."""

    def __init__(self, readers: ConnectionPool, lookups: ConnectionPool) -> None:
        self._readers = readers
        self._lookups = lookups

    async def find(self, type_: str, id_: str) -> ObjectState | None:
        row = await self._lookups.run(lambda db: db.execute(_FIND, (f"{type_}/{id_}",)).fetchone())
        return None if row is None else _state(row)

    async def of_keys(self, keys: Sequence[str]) -> list[ObjectState]:
        def find(db: sqlite3.Connection) -> list[ObjectState]:
            return [_state(row) for key in keys for row in db.execute(_FIND, (key,))]

        return await self._readers.run(find)

    async def page(self, after: str, limit: int, selection: Selection) -> ObjectsPage:
        return await self._readers.run(lambda db: _page(db, after, limit, selection))


def _page(db: sqlite3.Connection, after: str, limit: int, selection: Selection) -> ObjectsPage:
    keys = keys_of(selection, after)
    rows, next_ = (
        _of_spans(db, spans_of(selection, after), limit)
        if keys is None
        else _of_keys(db, keys, limit)
    )
    states = [
        _state(row)
        for row in rows
        if not row[3] and selection.matches_state(decode_stored(row[4]), deleted=False)
    ]
    return ObjectsPage(states, next_)


def _of_keys(
    db: sqlite3.Connection, keys: Sequence[str], limit: int
) -> tuple[list[_Row], str | None]:
    """Return the states of keys, up to a number and a size, and the key behind which more are."""
    found: list[_Row] = []
    characters = 0
    for number, key in enumerate(keys):
        if number == limit or characters >= READ_CHARACTERS:
            return found, keys[number - 1]
        for row in db.execute(_FIND, (key,)):
            found.append(row)
            characters += len(row[4])
    return found, None


def _of_spans(
    db: sqlite3.Connection, spans: Sequence[Span], limit: int
) -> tuple[list[_Row], str | None]:
    """Do ``_of_keys`` for all states in spans. An empty span counts as a state."""
    found: list[_Row] = []
    looked_at = characters = 0
    for number, (after, before) in enumerate(spans):
        if looked_at >= limit:
            return found, spans[number - 1].before
        given = {
            "after": after,
            "before": _NO_END if before is None else before,
            "limit": limit - looked_at,
            "characters": READ_CHARACTERS - characters,
        }
        rows: list[_Row] = db.execute(_SPAN, given).fetchall()
        found += rows
        characters += sum(len(row[4]) for row in rows)
        if len(rows) == limit - looked_at or characters >= READ_CHARACTERS:
            return found, rows[-1][0]
        looked_at += max(1, len(rows))
    return found, None


def _state(row: _Row) -> ObjectState:
    key, n, ts, deleted, data = row
    return ObjectState(key, Mark(n, ts), bool(deleted), data)
