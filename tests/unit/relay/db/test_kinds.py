"""A kind of database is one module: URLs, the schema and the writer find it there."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oplog_relay.db
from oplog_relay.config import load
from oplog_relay.db import open_outbox
from oplog_relay.db.operated import OperatedTable
from oplog_relay.db.schema import ddl
from oplog_relay.db.url import kinds, parse
from oplog_relay.model.errors import ConfigError, OutboxError
from oplog_relay.model.settings import DatabaseSettings
from oplog_relay.outbox import OutboxWriter

MODULE = '''
"""A database that notes its statements."""

from dataclasses import dataclass

from oplog_relay.db.base import DatabaseUrl


@dataclass(frozen=True)
class NotedUrl(DatabaseUrl):
    kind = "noted"
    label = "NotedDB"
    dialect = "noted"
    schemes = ("noted", "noted+driver")
    examples = ("noted://host",)
    drivers = {"noted_driver": "%s"}
    schema = "CREATE TABLE {table} ({id} serial, {topic} varchar({max_topic}));"
    now = "clock()"

    host: str

    @classmethod
    def read(cls, parts, query):
        return cls(parts["host"])

    def outbox(self, table):
        import noted_driver

    def connect(self, patience, *, autocommit):
        raise type("Error", (Exception,), {"__module__": "noted_driver.errors"})("away\\nat all")
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "noted.py").write_text(MODULE)
    with monkeypatch.context() as patch:
        patch.setattr(oplog_relay.db, "__path__", [*oplog_relay.db.__path__, str(tmp_path)])
        patch.delitem(sys.modules, "oplog_relay.db.noted", raising=False)
        kinds.cache_clear()
        yield
    kinds.cache_clear()


class Connection:
    """Notes the statement and values of a cursor."""

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def cursor(self) -> "Connection":
        return self

    def execute(self, *given: Any) -> None:
        self.noted.extend(given)

    def close(self) -> None:
        pass


def test_its_urls_are_read_from_a_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "relay.yaml"
    path.write_text("name: a\ndatabase: {url: 'noted+driver://me:sEcret@there'}\n")
    url = load(path, {}).database.url
    assert repr(parse(url)) == "NotedUrl(host='there')"
    with pytest.raises(ConfigError, match="use noted://host, postgresql://"):
        parse("other://host")


def test_its_schema_has_the_configured_names() -> None:
    assert ddl("noted") == 'CREATE TABLE "outbox" ("id" serial, "topic" varchar(249));'
    with pytest.raises(ConfigError, match="must be noted or postgres or sqlite, not 'oracle'"):
        ddl("oracle")


def test_the_writer_takes_connections_of_its_driver() -> None:
    kind = type("Session", (Connection,), {"__module__": "noted_driver.session"})
    connection = kind()
    OutboxWriter().message(connection, "orders", key="1", value=None, headers=[("a", "b")])
    statement, values = connection.noted
    assert "VALUES (clock(), %s, %s, %s, %s, %s)" in statement
    assert values == ["orders", "1", None, '["a"]', '["b"]']


def test_errors_of_its_driver_and_a_missing_driver_name_it() -> None:
    settings = DatabaseSettings("noted://there")
    with pytest.raises(OutboxError, match=r"^NotedDB \(database.url\): away$"):
        OperatedTable(settings)
    with pytest.raises(ConfigError, match=r"database.url: NotedDB needs noted_driver"):
        open_outbox(settings)


@pytest.mark.parametrize("name", ["psycopg", "sqlalchemy"])
def test_reading_a_url_imports_no_driver(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(oplog_relay.db, "postgres", None, raising=False)
    for each in [*sys.modules]:
        if each == name or each.startswith((f"{name}.", "oplog_relay.db.postgres")):
            monkeypatch.delitem(sys.modules, each)
    monkeypatch.setitem(sys.modules, name, None)
    kinds.cache_clear()
    assert parse("postgresql://u@h/d").label == "PostgreSQL"
