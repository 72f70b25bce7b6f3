"""The named consumers in the embedded store.

A function is a few statements in the caller's transaction. Acknowledgements that wait together
share a transaction.
"""

import sqlite3
from collections.abc import Collection, Sequence

from oplogd.clock import Clock
from oplogd.errors import ConsumerNotFoundError, StaleTermError
from oplogd.model.consumer import (
    MAX_ROWS,
    Acknowledgement,
    ConsumerSettings,
    NamedConsumer,
    ShardKey,
    ShardPosition,
    acknowledged,
    sought,
    taken,
)
from oplogd.store.consumers import (
    Acknowledged,
    ConsumerRow,
    decode_settings,
    encode_settings,
    no_consumer,
    other_settings,
    too_many_consumers,
)
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.file.pool import ConnectionPool

_FIND = "SELECT settings, created FROM consumers WHERE name = ?"
_SELECT = "SELECT name FROM consumers WHERE name > ? ORDER BY name LIMIT ?"
_COUNT = "SELECT count(*) FROM consumer_shards"
_CREATE = "INSERT INTO consumers VALUES (?, ?, ?)"
_CREATE_SHARD = "INSERT INTO consumer_shards VALUES (?, ?, ?, ?, ?, ?, ?)"
_SHARDS = """
    SELECT position, place, term, reader, acknowledged FROM consumer_shards
    WHERE name = ? ORDER BY shard
"""
_SHARD = """
    SELECT position, place, term, reader, acknowledged FROM consumer_shards
    WHERE name = ? AND shard = ?
"""
_SET = """
    UPDATE consumer_shards SET position = ?, place = ?, term = ?, reader = ?, acknowledged = ?
    WHERE name = ? AND shard = ?
"""
_TERMS = """
    SELECT name, shard, term FROM json_each(?)
    CROSS JOIN consumer_shards ON name = value ->> 0 AND shard = value ->> 1
"""
_ENDED = "SELECT ifnull(max(term), 0) FROM consumers_ended"
_END = """
    INSERT INTO consumers_ended
    SELECT max(term) + 1 FROM consumer_shards WHERE name = ? HAVING count(*)
"""
_FORGET_ENDED = """
    DELETE FROM consumers_ended WHERE term < (SELECT max(term) FROM consumers_ended)
"""
_DELETE_SHARDS = "DELETE FROM consumer_shards WHERE name = ?"
_DELETE = "DELETE FROM consumers WHERE name = ?"


class SqliteConsumers:
    """See ``Consumers``."""

    def __init__(self, writer: ConnectionPool, lookups: ConnectionPool, clock: Clock) -> None:
        self._now_ms = clock.now_ms
        self._writer = writer
        self._lookups = lookups

    async def create(
        self, name: str, settings: ConsumerSettings, position: str
    ) -> tuple[ConsumerRow, bool]:
        def change(db: sqlite3.Connection) -> tuple[ConsumerRow, bool]:
            with transaction(db):
                if (found := _find(db, name)) is not None:
                    if found.consumer.settings != settings:
                        raise other_settings(name)
                    return found, False
                if db.execute(_COUNT).fetchone()[0] + settings.shards > MAX_ROWS:
                    raise too_many_consumers()
                term = db.execute(_ENDED).fetchone()[0]
                consumer = NamedConsumer(name, settings, self._now_ms())
                db.execute(_CREATE, (name, encode_settings(settings), consumer.created_ms))
                shards = [ShardPosition(position, term=term)] * settings.shards
                rows = [(name, number, *shard) for number, shard in enumerate(shards)]
                db.executemany(_CREATE_SHARD, rows)
                return ConsumerRow(consumer, shards), True

        return await self._writer.run(change)

    async def find(self, name: str) -> ConsumerRow:
        def find(db: sqlite3.Connection) -> ConsumerRow:
            with transaction(db, "BEGIN"):
                return _existing(db, name)

        return await self._lookups.run(find)

    async def select(self, after: str, limit: int) -> list[ConsumerRow]:
        def find(db: sqlite3.Connection) -> list[ConsumerRow]:
            with transaction(db, "BEGIN"):
                names = [name for (name,) in db.execute(_SELECT, (after, limit))]
                return [_existing(db, name) for name in names]

        return await self._lookups.run(find)

    async def delete(self, name: str) -> None:
        def change(db: sqlite3.Connection) -> None:
            with transaction(db):
                db.execute(_END, (name,))
                db.execute(_FORGET_ENDED)
                db.execute(_DELETE_SHARDS, (name,))
                if not db.execute(_DELETE, (name,)).rowcount:
                    raise no_consumer(name)

        await self._writer.run(change)

    async def seek(self, name: str, shards: Collection[int], position: str) -> ConsumerRow:
        def change(db: sqlite3.Connection) -> ConsumerRow:
            with transaction(db):
                before = _existing(db, name).shards
                for number in shards:
                    _set(db, ShardKey(name, number), sought(before[number], position))
                return _existing(db, name)

        return await self._writer.run(change)

    async def take(
        self, key: ShardKey, reader: str, term: int | None
    ) -> tuple[NamedConsumer, ShardPosition]:
        def change(db: sqlite3.Connection) -> tuple[NamedConsumer, ShardPosition]:
            with transaction(db):
                consumer, before = _consumer(db, key.name), _shard(db, key)
                after = taken(before, key, reader, term)
                if after != before:
                    _set(db, key, after)
                return consumer, after

        return await self._writer.run(change)

    async def acknowledge(self, given: Sequence[Acknowledgement]) -> list[Acknowledged]:
        def change(db: sqlite3.Connection) -> list[Acknowledged]:
            with transaction(db):
                now_ms = self._now_ms()
                return [_acknowledge(db, each, now_ms) for each in given]

        return await self._writer.run(change)

    async def terms(self, keys: Collection[ShardKey]) -> dict[ShardKey, int]:
        wanted = as_json([*keys])

        def find(db: sqlite3.Connection) -> dict[ShardKey, int]:
            rows = db.execute(_TERMS, (wanted,))
            return {ShardKey(name, shard): term for name, shard, term in rows}

        return await self._lookups.run(find)


def _acknowledge(db: sqlite3.Connection, given: Acknowledgement, now_ms: int) -> Acknowledged:
    try:
        before = _shard(db, given.key)
        after = acknowledged(before, given, now_ms)
    except (ConsumerNotFoundError, StaleTermError) as error:
        return Acknowledged(None, error)
    if after is before:
        return Acknowledged(before, is_older=True)
    _set(db, given.key, after)
    return Acknowledged(after)


def _set(db: sqlite3.Connection, key: ShardKey, shard: ShardPosition) -> None:
    db.execute(_SET, (*shard, *key))


def _consumer(db: sqlite3.Connection, name: str) -> NamedConsumer:
    row = db.execute(_FIND, (name,)).fetchone()
    if row is None:
        raise no_consumer(name)
    return NamedConsumer(name, decode_settings(row[0]), row[1])


def _shard(db: sqlite3.Connection, key: ShardKey) -> ShardPosition:
    """Raises ConsumerNotFoundError."""
    row = db.execute(_SHARD, key).fetchone()
    if row is None:
        raise no_consumer(key.name)
    return ShardPosition(*row)


def _existing(db: sqlite3.Connection, name: str) -> ConsumerRow:
    if (found := _find(db, name)) is None:
        raise no_consumer(name)
    return found


def _find(db: sqlite3.Connection, name: str) -> ConsumerRow | None:
    row = db.execute(_FIND, (name,)).fetchone()
    if row is None:
        return None
    consumer = NamedConsumer(name, decode_settings(row[0]), row[1])
    return ConsumerRow(consumer, [ShardPosition(*each) for each in db.execute(_SHARDS, (name,))])
