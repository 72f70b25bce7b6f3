"""URLs of databases mean the same as in SQLAlchemy."""

import pytest

from oplog_relay.db import open_outbox
from oplog_relay.db.names import Names
from oplog_relay.db.postgres import PostgresUrl
from oplog_relay.db.sqlite import SqliteUrl
from oplog_relay.db.url import parse
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import DatabaseSettings, Table

SERVERS = [
    "postgresql://host",
    "postgresql:///db",
    "postgresql://me@/db",
    "postgresql://me@host/db",
    "postgresql://me:secret@host:5433/db",
    "postgresql://me%40here:p%40ss%2Fw%3A%25@host/my%20db",
    "postgresql://me:p/w:d@host/db",
    "postgresql+psycopg://me@[::1]:5433/db?sslmode=require&application_name=a%20b",
    "postgresql+psycopg2://me@host/db",
    "postgresql+asyncpg://me@host/db",
    "postgresql:///db?host=/var/run/postgresql&port=5433",
    "postgresql://me@/db?host=a:5432&host=b:5433",
    "postgresql://me@/db?host=a&host=b",
]


@pytest.mark.parametrize("url", SERVERS)
def test_a_url_of_postgresql_means_the_same_as_in_sqlalchemy(url: str) -> None:
    from sqlalchemy.engine import make_url  # its import takes 0.1 s

    theirs = make_url(url).set(drivername="postgresql+psycopg")
    _, wanted = theirs.get_dialect()().create_connect_args(theirs)
    wanted.pop("context", None)
    found = parse(url)
    assert isinstance(found, PostgresUrl)
    assert found.parameters == {name: str(value) for name, value in wanted.items()}
    assert "secret" not in repr(found)
    open_outbox(DatabaseSettings(url))


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("sqlite:///app.db", SqliteUrl("app.db")),
        ("sqlite:////data/app.db", SqliteUrl("/data/app.db")),
        ("sqlite+pysqlite:///data/a%20b.db", SqliteUrl("data/a b.db")),
        ("sqlite+aiosqlite:///app.db", SqliteUrl("app.db")),
        (
            "sqlite:///app.db?check_same_thread=false&timeout=2",
            SqliteUrl("app.db", busy=2.0),
        ),
        (
            "sqlite:///file:app.db?uri=true&mode=rw&timeout=1",
            SqliteUrl("file:app.db?mode=rw", True, 1.0),
        ),
    ],
)
def test_a_url_of_sqlite_names_a_file(url: str, wanted: SqliteUrl) -> None:
    from sqlalchemy.engine import make_url

    assert parse(url) == wanted
    assert make_url(url).database == wanted.file.partition("?")[0]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "not a URL such as postgresql://user@host"),
        ("/secret/app.db", "not a URL such as postgresql://user@host"),
        ("mysql://me:secret@host/db", "mysql:// is not supported; use postgresql://user@host"),
        ("sqlite://", "a database in memory has no other users"),
        ("sqlite:///:memory:", "a database in memory has no other users"),
        ("sqlite:///file:x?mode=memory&uri=true", "a database in memory has no other users"),
        ("sqlite://app.db", "after three slashes, an absolute one after four"),
        ("sqlite:///app.db?timeout=soon", "timeout must be a number of seconds"),
        ("postgresql://me:secret@x@host/db", "write %40 for each @"),
        ("postgresql://me:secret", "the port must be a number"),
        ("postgresql://me@host:99999/db", "the port must be a number"),
        ("postgresql://me@host/db?secret=1", 'invalid connection option "secret"'),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_showing_it(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_outbox(DatabaseSettings(url))
    said = str(raised.value)
    assert said.startswith("database.url: ")
    assert sentence in said
    assert "secret" not in said.replace('option "secret"', "")


def test_hosting_services_write_postgres_instead_of_postgresql() -> None:
    assert parse("postgres://me@host/db") == parse("postgresql://me@host/db")


def test_names_are_quoted() -> None:
    names = Names.of(Table(name='my schema.out"box', key="Key"))
    assert (names.table, names.key) == ('"my schema"."out""box"', '"Key"')


@pytest.mark.parametrize(
    ("table", "setting"),
    [
        (Table(name=""), "table"),
        (Table(name="a.b.c"), "table"),
        (Table(name=".b"), "table"),
        (Table(name="a\0"), "table"),
        (Table(key=""), "columns.key"),
        (Table(value="a\0"), "columns.value"),
        (Table(value="KEY"), "columns.value"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(table: Table, setting: str) -> None:
    for url in ("sqlite:///app.db", "postgresql:///db"):
        with pytest.raises(ConfigError, match=f"^database.{setting}: "):
            open_outbox(DatabaseSettings(url, table))
