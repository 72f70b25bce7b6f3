"""An outbox table as a service uses it, on PostgreSQL and on SQLite."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from oplog_relay.db.schema import ddl
from tests.kits.agents.agent import DEADLINE

# Oplog operations carry no number of their own, so their time is the number, in seconds from here.
ZERO = datetime(2000, 1, 1, tzinfo=UTC)
OPLOG = "oplog"
DatabaseError = (psycopg.Error, sqlite3.Error)


class NewRow(NamedTuple):
    """A row to insert. ``deletes``: without a value."""

    topic: str
    key: str
    number: int
    deletes: bool = False

    @property
    def create_time(self) -> datetime:
        return ZERO + timedelta(seconds=self.number)

    @property
    def value(self) -> str | None:
        """Return what the reader expects: see ``reading``."""
        if self.deletes:
            return None
        if self.topic != OPLOG:
            return f"{self.key} {self.number}"
        type_, _, id_ = self.key.partition("/")
        timestamp = self.create_time.strftime("%Y-%m-%dT%H:%M:%SZ")
        return json.dumps({"event": "update", "type": type_, "id": id_, "timestamp": timestamp})


class Session:
    """A connection of the service. Nothing is committed by itself."""

    def __init__(self, url: str) -> None:
        self._postgres = not url.startswith("sqlite")
        self._db: Any
        if self._postgres:
            self._db = psycopg.connect(url)
        else:
            path = url.removeprefix("sqlite:///")
            self._db = sqlite3.connect(path, timeout=DEADLINE, check_same_thread=False)
        self._mark = "%s" if self._postgres else "?"

    def insert(self, *rows: NewRow) -> list[int]:
        """Insert rows in the present transaction, and return their ids."""
        return [self._insert(row) for row in rows]

    def insert_many(self, rows: Sequence[NewRow]) -> None:
        names, marks = self._columns()
        with closing(self._db.cursor()) as cursor:
            cursor.executemany(
                f"INSERT INTO outbox ({names}) VALUES ({marks})", [self._values(r) for r in rows]
            )

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(self._db.cursor()) as cursor:
            cursor.execute(statement.replace("?", self._mark), values)
            return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        self._db.commit()

    def rollback(self) -> None:
        self._db.rollback()

    def close(self) -> None:
        with contextlib.suppress(*DatabaseError):
            self._db.close()

    def _columns(self) -> tuple[str, str]:
        names = "create_time, topic, key, value, header_keys, header_values"
        return names, ", ".join([self._mark] * 6)

    def _values(self, row: NewRow) -> list[object]:
        headers: list[Any] = [["number"], [str(row.number)]]
        when: Any = row.create_time
        if not self._postgres:
            headers = [json.dumps(each) for each in headers]
            when = when.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return [when, row.topic, row.key, row.value, *headers]

    def _insert(self, row: NewRow) -> int:
        names, marks = self._columns()
        with closing(self._db.cursor()) as cursor:
            cursor.execute(
                f"INSERT INTO outbox ({names}) VALUES ({marks}) RETURNING id", self._values(row)
            )
            id_: int = cursor.fetchone()[0]
            return id_


class OutboxTable:
    """An empty outbox at this URL. ``done``: ids of the service's own committed transactions."""

    def __init__(self, url: str) -> None:
        self.url = url
        with self.session() as session:
            kind = "sqlite" if url.startswith("sqlite") else "postgres"
            for statement in ddl(kind).split(";"):
                if statement.strip():
                    session.execute(statement)
            session.execute("CREATE TABLE done (id TEXT PRIMARY KEY)")
            session.commit()

    @contextmanager
    def session(self) -> Iterator[Session]:
        with closing(Session(self.url)) as session:
            yield session

    def insert(self, *rows: NewRow) -> None:
        """Insert rows in one transaction."""
        with self.session() as session:
            session.insert_many(rows)
            session.commit()

    def rows(self) -> int:
        with self.session() as session:
            ((rows,),) = session.execute("SELECT count(*) FROM outbox")
            return int(rows)

    def marked(self) -> int:
        """Return the number of rows with a leader id."""
        with self.session() as session:
            ((rows,),) = session.execute("SELECT count(leader_id) FROM outbox")
            return int(rows)
