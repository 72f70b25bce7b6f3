"""The outbox table as SQL, with the configured names."""

from oplog_relay.db.names import Names
from oplog_relay.db.url import kinds
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import Table

MAX_TOPIC = 249
MAX_KEY = 100
# Bytes of a payload agents take. The table has no such limit.
MAX_PAYLOAD = 1024 * 1024


def ddl(kind: str, table: Table = Table()) -> str:  # noqa: B008
    """Return the statement for a new table. ``kind``: of a database, such as ``sqlite``.

    Raises ConfigError.
    """
    if kind not in kinds():
        raise ConfigError(f"schema: must be {' or '.join(kinds())}, not {kind!r}")
    names = Names.of(table)._asdict()
    return kinds()[kind].schema.format(**names, max_topic=MAX_TOPIC, max_key=MAX_KEY)
