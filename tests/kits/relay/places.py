"""Databases with an outbox, for tests that run on each of them."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import psycopg

from oplog_relay.db import DatabaseOutbox, open_outbox
from oplog_relay.db.names import Names
from oplog_relay.db.schema import ddl
from oplog_relay.model.settings import DatabaseSettings, Table
from oplog_relay.model.stamp import stamp
from oplog_relay.outbox import Headers, OutboxWriter
from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.postgres import PostgresServer

Kind = Literal["postgres", "sqlite"]


class Place:
    """A new database. ``table``: names of its outbox, which ``create`` makes."""

    def __init__(self, kind: Kind, folder: Path, server: PostgresServer | None) -> None:
        self.kind = kind
        self.table = Table()
        self._file = folder / "app.db"
        self.url = f"sqlite:///{self._file}" if server is None else server.new_database()

    def create(self, table: Table | None = None) -> None:
        self.table = table or Table()
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self._file)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
        self.run(ddl(self.kind, self.table))

    def open(self) -> DatabaseOutbox:
        return open_outbox(DatabaseSettings(self.url, self.table))

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """Connect as a service does; nothing is committed by itself."""
        connection: Any = (
            sqlite3.connect(self._file, timeout=DEADLINE)
            if self.kind == "sqlite"
            else psycopg.connect(self.url)
        )
        with closing(connection):
            yield connection

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` for each parameter in a transaction of its own."""
        if self.kind == "postgres" and parameters:
            statement = statement.replace("%", "%%").replace("?", "%s")
        with self.connect() as connection:
            cursor = connection.cursor()
            cursor.execute(*([statement, parameters] if parameters else [statement]))
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return rows

    def insert(
        self,
        *keys: str,
        topic: str = "topic",
        value: str | None = "value",
        headers: Headers = (),
    ) -> None:
        """Commit one row for each key."""
        with self.connect() as connection:
            writer = OutboxWriter(self.table)
            for key in keys:
                writer.message(connection, topic, key=key, value=value, headers=headers)
            connection.commit()

    @property
    def outbox(self) -> Names:
        """The quoted names of the table."""
        return Names.of(self.table)

    def restart(self) -> None:
        """Delete all rows and begin the ids anew."""
        if self.kind == "postgres":
            self.run("TRUNCATE outbox RESTART IDENTITY")
        else:
            self.run("DELETE FROM outbox")
            self.run("DELETE FROM sqlite_sequence WHERE name = 'outbox'")

    def leaders(self) -> list[tuple[int, str | None]]:
        """Return the ids of all rows, each with its leader id."""
        names = self.table
        rows = self.run(f"SELECT {names.id}, {names.leader_id} FROM {names.name} ORDER BY 1")
        return [(id_, None if leader is None else str(leader)) for id_, leader in rows]

    def waiting(self) -> int:
        """Return the number of sessions in PostgreSQL that wait for a lock of another one.

        A lock of a row names no database, and other tests share the server.
        """
        sessions = "pg_stat_activity WHERE datname = current_database()"
        count = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        return int(self.run(f"{count} AND pid IN (SELECT pid FROM {sessions})")[0][0])

    def ids(self) -> list[int]:
        return [id_ for id_, _ in self.leaders()]


def stamped(leader_id: UUID, mark: int = 0) -> str:
    """Return the text that a mark leaves in the column of the leader id."""
    return str(stamp(leader_id, mark))


def ids_of(rows: Sequence[Any]) -> list[int]:
    return [row.id for row in rows]
