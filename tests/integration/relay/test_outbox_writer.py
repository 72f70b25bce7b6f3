"""Rows are inserted within the caller's transaction, and faults are named before that."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from oplog_relay.db.schema import ddl
from oplog_relay.model.errors import RowError
from oplog_relay.model.settings import Table
from oplog_relay.outbox import OutboxWriter
from tests.kits.servers.postgres import PostgresServer

WRITER = OutboxWriter()
ROW = ("default/t", "k:%s?", "vä:l", ["h:%s"], ["1"])
READ = "SELECT topic, key, value, header_keys, header_values FROM outbox ORDER BY id"


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    url = postgres.new_database()
    postgres.run(ddl("postgres"), url.rpartition("/")[2])
    return url


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        connection.executescript(ddl("sqlite"))
        yield connection


def insert(connection: Any) -> None:
    topic, key, value, names, texts = ROW
    WRITER.message(connection, topic, key=key, value=value, headers=zip(names, texts, strict=True))


def as_text(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(*row[:3], json.loads(row[3]), json.loads(row[4])) for row in rows]


def test_a_connection_or_cursor_of_sqlite3_keeps_its_transaction_and_its_rows(
    database: sqlite3.Connection,
) -> None:
    cursor = database.execute("SELECT 1 UNION SELECT 2")
    insert(cursor)
    assert cursor.fetchall() == [(1,), (2,)]
    assert as_text(database.execute(READ).fetchall()) == [ROW]
    database.rollback()
    assert database.execute(READ).fetchall() == []
    insert(database)
    database.commit()
    database.rollback()
    assert as_text(database.execute(READ).fetchall()) == [ROW]


def test_a_connection_or_cursor_of_psycopg_keeps_its_transaction_and_its_rows(
    postgres_url: str,
) -> None:
    with psycopg.connect(postgres_url) as connection:
        cursor = connection.execute("SELECT generate_series(1, 2)")
        insert(cursor)
        assert cursor.fetchall() == [(1,), (2,)]
        assert connection.execute(READ).fetchall() == [ROW]
        connection.rollback()
        assert connection.execute(READ).fetchall() == []
        insert(connection)
        connection.commit()
        connection.rollback()
        assert connection.execute(READ).fetchall() == [ROW]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_sessions_and_connections_of_sqlalchemy_keep_their_transaction(
    kind: str, request: pytest.FixtureRequest
) -> None:
    from sqlalchemy import create_engine  # its import takes 0.1 s
    from sqlalchemy.orm import Session

    if kind == "sqlite":
        source = request.getfixturevalue("database")
        engine = create_engine("sqlite://", creator=lambda: source)
    else:
        url: str = request.getfixturevalue("postgres_url")
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        insert(connection)
        connection.rollback()
        insert(connection)
        connection.commit()
    with Session(engine) as session:
        insert(session)
        session.rollback()
        insert(session)
        session.commit()
    with engine.begin() as connection:
        insert(connection.connection)
    with pytest.raises(TypeError, match="a session or connection of SQLAlchemy, not Engine"):
        insert(engine)
    with engine.connect() as connection:
        rows: list[Any] = [tuple(row) for row in connection.exec_driver_sql(READ)]
        assert (as_text(rows) if kind == "sqlite" else rows) == [ROW, ROW, ROW]
    engine.dispose()


async def test_a_session_of_sqlalchemys_asyncio_runs_the_writer(postgres_url: str) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    async with engine.begin() as connection:
        await connection.run_sync(WRITER.message, "t", key="k", value=None)
        with pytest.raises(TypeError, match=r"await session\.run_sync"):
            WRITER.message(connection, "t", key="k", value=None)
    await engine.dispose()
    with psycopg.connect(postgres_url) as check:
        assert check.execute(READ).fetchall() == [("t", "k", None, [], [])]


def test_names_of_table_and_columns_are_settings(postgres_url: str) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    table = Table(name="public.a:b%s", key="kafka :key", value="{x}")
    writer = OutboxWriter(table)
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with psycopg.connect(postgres_url) as connection, Session(engine) as session:
        connection.execute(ddl("postgres", table).encode())
        connection.commit()
        for each in (connection, session):
            writer.message(each, "t", key="k", value="v")
            each.commit()
        found = connection.execute(b'SELECT "kafka :key", "{x}" FROM "a:b%s"').fetchall()
        assert found == [("k", "v")] * 2
    engine.dispose()


def test_an_operation_has_the_key_of_its_object(database: sqlite3.Connection) -> None:
    WRITER.operation(database, "Update", "Video", "x/ü", ["a"], "2026-01-02T03:04:05Z")
    WRITER.operation(database, "delete", "video", "y" * 500)
    WRITER.operation(database, "insert", "video", "y" * 500)
    first, second, third = database.execute(READ).fetchall()
    assert (first[0], first[1], first[3:]) == ("oplog", "video/x/ü", ("[]", "[]"))
    assert json.loads(first[2]) == {
        "event": "Update",
        "type": "Video",
        "id": "x/ü",
        "parents": ["a"],
        "timestamp": "2026-01-02T03:04:05Z",
    }
    assert second[1] == third[1]
    assert len(second[1]) == 100
    assert second[1].startswith("video/yyy")


def test_a_mapping_or_list_becomes_json(database: sqlite3.Connection) -> None:
    WRITER.message(database, "t", key="k", value={"a": ["ü", 1]}, headers={"x": "y"})
    WRITER.message(database, "t", key="k", value=[])
    assert [row[2] for row in database.execute(READ)] == ['{"a":["ü",1]}', "[]"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"key": ""}, "key: must not be empty"),
        ({"key": "k" * 101}, "key: has 101 characters, more than 100"),
        ({"key": 42}, "key: must be a string, not int"),
        ({"key": "\0"}, "key: must not contain NUL"),
        ({"value": "é" * 524_289}, "value: has 1,048,578 bytes, more than 1,048,576"),
        ({"value": b"v"}, "value: must be a string, not bytes"),
        ({"value": "\ud800"}, "value: contains an unpaired surrogate"),
        ({"value": {"a": object()}}, "value: cannot become JSON"),
        ({"value": [float("nan")]}, "value: cannot become JSON"),
        ({"topic": "a b"}, "topic: 'a b' is not a topic"),
        ({"topic": "n/" + "t" * 248}, "topic: has 250 characters, more than 249"),
        ({"topic": "oplog"}, "topic: 'oplog' takes operations: call operation()"),
        ({"topic": "system/oplog"}, "topic: 'system/oplog' takes operations"),
        ({"headers": "ab"}, "headers: must be a mapping, or pairs"),
        ({"headers": {"a": None}}, "headers: must be a string, not NoneType"),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(
    changes: dict[str, Any], sentence: str, database: sqlite3.Connection
) -> None:
    with pytest.raises(RowError) as raised:
        WRITER.message(database, **{"topic": "t", "key": "k", "value": "v", **changes})
    assert str(raised.value).startswith(sentence)
    assert raised.value.field == sentence.partition(":")[0]
    assert database.execute(READ).fetchall() == []


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        (("upsert", "video", "1"), "event: must be insert, update or delete"),
        (("insert", "a/b", "1"), "type: must not contain"),
        (("insert", "video", ""), "id: must not be empty"),
        (("insert", "video", "1", ["p" * 65_536]), "operation: has 65,"),
    ],
)
def test_an_operation_that_breaks_a_rule_is_refused(
    operation: tuple[Any, ...], sentence: str, database: sqlite3.Connection
) -> None:
    with pytest.raises(RowError) as raised:
        WRITER.operation(database, *operation)
    assert str(raised.value).startswith(sentence)
    assert database.execute(READ).fetchall() == []


def test_another_database_is_refused() -> None:
    with pytest.raises(TypeError, match="give a connection or cursor of psycopg, psycopg2 or"):
        insert(object())


def test_both_databases_check_the_lengths_themselves(
    database: sqlite3.Connection, postgres_url: str
) -> None:
    insert_all = "INSERT INTO outbox (topic, key, value) VALUES "
    with psycopg.connect(postgres_url, autocommit=True) as other:
        for lengths in ((250, 1, 1), (1, 101, 1)):
            texts = ["é" * length for length in lengths]
            with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
                database.execute(insert_all + "(?, ?, ?)", texts)
            with pytest.raises(psycopg.DataError, match="too long"):
                other.execute(insert_all + "(%s, %s, %s)", texts)
        longest = ["é" * length for length in (249, 100, 1024 * 1024)]
        database.execute(insert_all + "(?, ?, ?)", longest)
        other.execute(insert_all + "(%s, %s, %s)", longest)
