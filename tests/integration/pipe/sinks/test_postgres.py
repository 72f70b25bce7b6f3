"""The sink for PostgreSQL: tables, columns, transactions and failures."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from oplog_pipe.errors import ConfigError, SinkError, TargetError
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.sink import PostgresSink
from tests.kits.agents.agent import DEADLINE
from tests.kits.pipe.messages import OPLOG, message, owner, version
from tests.kits.pipe.targets import SECRET, PostgresTarget, opened
from tests.kits.processes.suspend import suspend
from tests.kits.servers.postgres import PostgresServer


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


@contextmanager
def patience(sink: PostgresSink) -> Iterator[None]:
    """Give the statements of an impatient sink as much time as a busy machine needs."""
    with pytest.MonkeyPatch.context() as patch:
        for session in sink._lanes._sessions:
            patch.setattr(session, "_timeout", DEADLINE)
        yield


def test_a_missing_table_is_created_with_a_column_for_data(target: PostgresTarget) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(0)])
    assert target.run(
        "SELECT attname::text, format_type(atttypid, NULL), attnotnull FROM pg_attribute"
        " WHERE attrelid = 'video'::regclass AND attnum > 0 ORDER BY attnum"
    ) == [
        ("id", "text", True),
        ("version", "bigint", True),
        ("source", "text", True),
        ("timestamp", "timestamp with time zone", True),
        ("oplog_owner", "text", False),
        ("data", "jsonb", False),
    ]


def test_columns_take_values_at_paths_and_postgresql_converts_them(target: PostgresTarget) -> None:
    target.run(
        "CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
        ' "timestamp" timestamptz, title text, views integer, born date, tags text[], owner jsonb,'
        ' "owner name" text, note text, untouched integer DEFAULT 7)'
    )
    columns = {
        "title": "title",
        "views": "n",
        "born": "born",
        "tags": "tags",
        "owner": "owner",
        "owner name": "owner.name",
        "note": "owner.name.first",
    }
    data = {
        "title": "A",
        "n": 5,
        "born": "2014-11-06",
        "tags": ["x", 'y"'],
        "owner": {"name": "Ann", "age": 3},
    }
    query = "SELECT title, views, born::text, tags, owner, {}, note, untouched FROM video"
    query = query.format('"owner name"')
    with opened(target.sink(columns=columns)) as sink:
        sink.write([message(0, data=data)])
        assert target.run(query) == [
            ("A", 5, "2014-11-06", ["x", 'y"'], data["owner"], "Ann", None, 7)
        ]
        target.run("UPDATE video SET untouched = 8")
        sink.write([message(1, data={"n": "6"})])
        assert target.run(query) == [(None, 6, None, None, None, None, None, 8)]
        with pytest.raises(SinkError, match="invalid input syntax for type integer") as caught:
            sink.write([message(2, "b"), message(3, "c", data={"n": "many"}), message(4, "d")])
        assert (caught.value.transient, caught.value.index) == (False, 1)
        assert target.run("SELECT id FROM video") == [("a",)]


def test_a_table_with_columns_is_created_with_text(target: PostgresTarget) -> None:
    with opened(target.sink(columns={'odd" {x} %s': "n", "owner": "owner"})) as sink:
        sink.write([message(0, data={"n": 1, "owner": {"a": [1]}})])
    assert target.run('SELECT "odd"" {x} %s", owner FROM video') == [("1", '{"a":[1]}')]


@pytest.mark.parametrize("column", ["id", "version", "source", "timestamp", "oplog_owner"])
def test_a_column_of_the_sink_cannot_be_mapped(column: str, target: PostgresTarget) -> None:
    with pytest.raises(SinkError, match=f"columns.{column}: the sink itself writes this column"):
        target.sink(columns={column: "x"}).open()


def test_odd_namespaces_are_names_of_tables(target: PostgresTarget) -> None:
    odd = ['a"b', "per%cent %s", "{columns}", "a.b", "ns/topic", "Ünï", "x" * 63]
    with opened(target.sink()) as sink:
        sink.write([message(each, namespace=name) for each, name in enumerate(odd)])
        for each, name in enumerate(odd):
            assert target.objects(name)["a"].version == version(each)
        sink.end_copy(version(len(odd)), OPLOG)
        assert [target.objects(name) for name in odd] == [{}] * len(odd)


def test_a_name_that_postgresql_would_cut_is_refused(target: PostgresTarget) -> None:
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError, match="at 63 bytes") as caught:
            sink.write([message(0), message(1, namespace="é" * 32)])
        assert (caught.value.transient, caught.value.index) == (False, 1)
    assert target.run("SELECT to_regclass('video')") == [(None,)]


def test_a_table_may_be_in_a_schema(target: PostgresTarget) -> None:
    target.run("CREATE SCHEMA copies")
    with opened(target.sink(table="copies.of_{namespace}")) as sink:
        sink.write([message(0), message(1, namespace="a.b")])
        assert target.run('SELECT id FROM copies."of_a.b"') == [("a",)]
        sink.end_copy(version(9), OPLOG)
        assert target.run("SELECT id FROM copies.of_video") == []


def test_a_missing_schema_is_a_permanent_failure(target: PostgresTarget) -> None:
    with opened(target.sink(table="missing.t", id="{namespace}/{id}")) as sink:
        with pytest.raises(SinkError, match='schema "missing" does not exist') as caught:
            sink.write([message(0)])
        assert not caught.value.transient


def test_one_table_takes_all_namespaces_by_a_template_of_the_id(target: PostgresTarget) -> None:
    with opened(target.sink(table="objects", id="{namespace}/{id}")) as sink:
        sink.write([message(0), message(1, namespace="user"), message(2, "{namespace}")])
    assert sorted(target.objects("objects")) == ["user/a", "video/a", "video/{namespace}"]


def test_without_create_a_missing_table_is_a_permanent_failure(target: PostgresTarget) -> None:
    target.run("CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
               ' "timestamp" timestamptz, oplog_owner text, data jsonb)')  # fmt: skip
    with opened(target.sink(create=False)) as sink:
        with pytest.raises(TargetError, match='"user" does not exist') as caught:
            sink.write([message(0), message(1, namespace="user")])
        assert (caught.value.transient, caught.value.index) == (False, None)
        sink.write([message(0)])
    assert list(target.objects()) == ["a"]


def test_a_batch_is_one_transaction_over_all_tables(target: PostgresTarget) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(0), message(1, namespace="user")])
        with pytest.raises(SinkError):
            sink.write([message(2), message(3, namespace="user", data={"text": "\0"})])
        assert target.objects()["a"].version == version(0)


def test_a_table_that_somebody_drops_is_created_again_at_the_repetition(
    target: PostgresTarget,
) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(0)])
        target.run("DROP TABLE video")
        with pytest.raises(SinkError) as caught:
            sink.write([message(1)])
        assert caught.value.transient
        sink.write([message(1)])
    assert target.objects()["a"].version == version(1)


def test_an_id_with_a_nul_is_named(target: PostgresTarget) -> None:
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError, match="invalid byte sequence") as caught:
            sink.write([message(0), message(1, "a\0b")])
        assert (caught.value.transient, caught.value.index) == (False, 1)


def test_the_end_of_a_copy_leaves_tables_of_others(target: PostgresTarget) -> None:
    """One of them has columns with our names and other types."""
    target.run("CREATE TABLE theirs (id int, version text, source int, timestamp time)")
    target.run("INSERT INTO theirs VALUES (1, 'v1')")
    target.run("CREATE TABLE former (id text, version bigint, source text, timestamp timestamptz)")
    target.run(f"INSERT INTO former VALUES ('x', 1, '{OPLOG}')")
    with opened(target.sink()) as sink:
        sink.write([message(0)])
        sink.end_copy(version(9), OPLOG)
        assert target.objects() == {}
    assert target.run("SELECT id FROM theirs") == [(1,)]
    assert target.run("SELECT id FROM former") == [("x",)]


def test_a_table_of_an_earlier_release_gets_the_column_and_its_rows_an_owner_when_written(
    target: PostgresTarget,
) -> None:
    target.run("CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
               ' "timestamp" timestamptz, data jsonb)')  # fmt: skip
    for id, offset in (("written", 0), ("left", 0), ("newer", 500)):
        target.run(f"INSERT INTO video VALUES ('{id}', {version(offset)}, '{OPLOG}')")
    with opened(target.sink(create=False)) as sink:
        assert sink.missing() == [
            'ALTER TABLE "public"."video" ADD COLUMN IF NOT EXISTS oplog_owner text'
        ]
        with pytest.raises(
            TargetError, match="has no column oplog_owner; run as its owner: ALTER TABLE"
        ):
            sink.write([message(3, "written")])
    with opened(target.sink(), owner(newest=9)) as sink:
        assert sink.missing() == []
        sink.write([message(3, "written")])
        with pytest.raises(ConfigError, match="another folder or checkpoint has written the row"):
            sink.write([message(4, "newer")])
        sink.end_copy(version(5), OPLOG)
    with opened(target.sink(create=False)) as sink:
        assert sink.missing() == []
    assert target.run("SELECT id FROM video WHERE oplog_owner IS NULL ORDER BY id") == [
        ("left",),
        ("newer",),
    ]
    assert target.run("SELECT id FROM video WHERE oplog_owner = 'test/sink'") == []


def test_the_end_of_a_copy_removes_more_rows_than_one_transaction_takes(
    target: PostgresTarget,
) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(each, f"id{each}") for each in (0, 60_000)])
        target.run(
            "INSERT INTO video SELECT 'id' || n, "
            f" {version(0)} + n, '{OPLOG}', now(), 'test/sink' FROM generate_series(1, 25000) n"
        )
        sink.end_copy(version(24_999), OPLOG)
    assert sorted(target.objects()) == ["id24999", "id25000", "id60000"]


def test_a_statement_that_takes_too_long_is_a_transient_failure(target: PostgresTarget) -> None:
    made = target.sink(timeout=0.05)
    with ExitStack() as stack:
        with patience(made):
            sink = stack.enter_context(opened(made))
            sink.write([message(0)])
        with psycopg.connect(target.url) as other:
            other.execute("LOCK TABLE video")
            with pytest.raises(SinkError, match="statement timeout") as caught:
                sink.write([message(1)])
        assert caught.value.transient
        with patience(sink):
            sink.write([message(1)])
    assert target.objects()["a"].version == version(1)


def test_a_connection_that_the_server_ends_is_opened_again(target: PostgresTarget) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(0)])
        target.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'oplog-pipe' AND datname = current_database()"
        )
        with pytest.raises(SinkError) as caught:
            sink.write([message(1)])
        assert caught.value.transient
        sink.write([message(1)])
    assert target.objects()["a"].version == version(1)


def test_a_server_that_is_frozen_is_a_transient_failure(target: PostgresTarget) -> None:
    made = target.sink(timeout=0.05)
    with ExitStack() as stack:
        with patience(made):
            sink = stack.enter_context(opened(made))
            sink.write([message(0)])
        ((backend,),) = target.run(
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = 'oplog-pipe' AND datname = current_database()"
        )
        suspend(backend)
        try:
            with pytest.raises(SinkError) as caught:
                sink.write([message(1)])
        finally:
            os.kill(backend, signal.SIGCONT)
        assert caught.value.transient
        with patience(sink):
            sink.write([message(2)])
    assert target.objects()["a"].version == version(2)


def test_a_server_that_is_frozen_behind_the_login_is_a_transient_failure() -> None:
    login = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"  # authentication is done, ready for a query
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(login)
                while connection.recv(1024):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = server.getsockname()
        url = f"postgresql://u@{host}:{port}/d?sslmode=disable&gssencmode=disable"
        sink = PostgresSink(PostgresOptions(url, timeout=0.05))
        with pytest.raises(SinkError) as caught:
            sink.open()
        thread.join()
    assert caught.value.transient


@pytest.mark.parametrize("ms", [-62135596800000, -1, 1, 9_007_199_254_741, 253402300799999])
def test_the_time_of_a_row_is_exact(ms: int, target: PostgresTarget) -> None:
    changed = message(0)
    changed.timestamp = ms
    with opened(target.sink()) as sink:
        sink.write([changed])
    query = 'SELECT (extract(epoch FROM "timestamp") * 1000000)::bigint FROM video'
    assert target.run(query) == [(ms * 1000,)]


def test_a_server_that_can_only_read_is_a_transient_failure(target: PostgresTarget) -> None:
    database = target.url.rpartition("/")[2]
    target.server.run(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError, match="read-only") as caught:
            sink.write([message(0)])
        assert caught.value.transient
        target.server.run(f"ALTER DATABASE {database} SET default_transaction_read_only = off")
        sink.write([message(0)])
    assert list(target.objects()) == ["a"]


def test_a_refused_user_is_no_transient_failure(postgres: PostgresServer) -> None:
    with postgres.guarded_user(SECRET) as user:
        for account in (f"{user}:wrong", user, "nobody-at-all"):
            url = postgres.url().replace("postgres@", f"{account}@")
            with pytest.raises(TargetError, match="; look at url") as caught:
                PostgresSink(PostgresOptions(url)).open()
            assert not caught.value.transient


def test_the_log_says_at_the_start_that_a_server_is_not_verified(
    target: PostgresTarget, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{target.url.replace('127.0.0.1', 'db.example.com')}?hostaddr=127.0.0.1"
    with opened(PostgresSink(PostgresOptions(url))), opened(target.sink()):
        pass
    (record,) = caplog.records
    assert record.getMessage().startswith("sink 'sink': sslmode is prefer: ")


def test_a_user_without_rights_is_a_permanent_failure(target: PostgresTarget) -> None:
    target.run("CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
               ' "timestamp" timestamptz, oplog_owner text, data jsonb)')  # fmt: skip
    if not target.server.run("SELECT FROM pg_roles WHERE rolname = 'pipe_reader'"):
        target.server.run("CREATE ROLE pipe_reader LOGIN")
    sink = PostgresSink(PostgresOptions(target.url.replace("postgres@", "pipe_reader@")))
    sink.own(owner())
    sink.open()
    with pytest.raises(TargetError, match="permission denied") as caught:
        sink.write([message(0)])
    sink.close()
    assert (caught.value.transient, caught.value.index) == (False, None)
