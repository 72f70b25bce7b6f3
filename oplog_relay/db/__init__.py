"""The databases that hold an outbox."""

from typing import Protocol

from oplog_relay.db.sqlite import SqliteOutbox
from oplog_relay.db.url import SqliteUrl, parse
from oplog_relay.model.bindings import CheckedOutbox, IdentifiedOutbox, MeasurableOutbox, Outbox
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import DatabaseSettings


class DatabaseOutbox(Outbox, MeasurableOutbox, CheckedOutbox, IdentifiedOutbox, Protocol):
    """An outbox in one of the databases."""


def open_outbox(settings: DatabaseSettings) -> DatabaseOutbox:
    """Return the outbox of the settings; the first call connects. Raises ConfigError."""
    url = parse(settings.url)
    if isinstance(url, SqliteUrl):
        return SqliteOutbox(url, settings.table)
    try:
        from oplog_relay.db.postgres import PostgresOutbox  # psycopg: for its users only
    except ImportError as error:
        raise ConfigError(
            f"database.url: PostgreSQL needs psycopg ({error}); in the checkout of oplog, run:"
            " pip install -c constraints.txt '.[relay]' ./clients/python"
        ) from None
    return PostgresOutbox(url, settings.table)
