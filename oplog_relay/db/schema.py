"""The outbox table as SQL, with the configured names."""

from oplog_relay.db.names import Names
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import Table

MAX_TOPIC = 249
MAX_KEY = 100
# Bytes of a payload that agents take. The table has no such limit.
MAX_PAYLOAD = 1024 * 1024

_POSTGRES = """\
CREATE TABLE {table} (
    {id} bigserial PRIMARY KEY,
    {create_time} timestamptz NOT NULL DEFAULT now(),
    {topic} varchar({max_topic}) NOT NULL,
    {key} varchar({max_key}) NOT NULL,
    {value} text,
    {header_keys} text[] NOT NULL DEFAULT '{{}}',
    {header_values} text[] NOT NULL DEFAULT '{{}}',
    {leader_id} uuid
) WITH (fillfactor = 50); -- room for the mark beside its row: the index does not grow
"""
# STRICT and the JSON functions are not in every SQLite that Python 3.11 comes with.
_SQLITE = """\
CREATE TABLE {table} (
    -- AUTOINCREMENT: the id of a deleted row is never used again.
    {id} INTEGER PRIMARY KEY AUTOINCREMENT,
    {create_time} TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    {topic} TEXT NOT NULL CHECK (length({topic}) <= {max_topic}),
    {key} TEXT NOT NULL CHECK (length({key}) <= {max_key}),
    {value} TEXT,
    -- JSON: a list of strings.
    {header_keys} TEXT NOT NULL DEFAULT '[]',
    {header_values} TEXT NOT NULL DEFAULT '[]',
    {leader_id} TEXT
);
"""
_KINDS = {"postgres": _POSTGRES, "sqlite": _SQLITE}


def ddl(kind: str, table: Table = Table()) -> str:  # noqa: B008
    """Return the statement that creates the table. ``kind``: ``postgres`` or ``sqlite``.

    Raises ConfigError.
    """
    if kind not in _KINDS:
        raise ConfigError(f"schema: must be {' or '.join(_KINDS)}, not {kind!r}")
    return _KINDS[kind].format(**Names.of(table)._asdict(), max_topic=MAX_TOPIC, max_key=MAX_KEY)
