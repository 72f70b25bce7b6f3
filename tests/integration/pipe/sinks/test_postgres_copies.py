"""The end of a copy in tables of PostgreSQL that an administrator has made."""

import os
from collections.abc import Iterator

import pytest

from oplog_pipe.errors import TargetError
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.sink import PostgresSink
from tests.kits.pipe.messages import OPLOG, message, version
from tests.kits.pipe.targets import PostgresTarget, opened
from tests.kits.servers.postgres import PostgresServer

COLUMNS = (
    'id text UNIQUE, version bigint, source text, "timestamp" timestamptz, oplog_owner text,'
    " data jsonb"
)
VIEW = f"CREATE TABLE behind ({COLUMNS}); CREATE VIEW video AS SELECT * FROM behind"
PARTITION = (
    f"CREATE TABLE whole ({COLUMNS}) PARTITION BY HASH (id);"
    " CREATE TABLE video PARTITION OF whole FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
)
ROW_OF_ANOTHER = f"CREATE TABLE video ({COLUMNS}); INSERT INTO video (id) VALUES (NULL)"


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


@pytest.fixture
def role(target: PostgresTarget) -> Iterator[str]:
    """A user who may write to the table of videos, and delete nothing."""
    target.run(f"CREATE TABLE video ({COLUMNS})")
    name = f"no_delete_{os.getpid()}"
    target.run(f"CREATE ROLE {name} LOGIN")
    target.run(f"GRANT SELECT, INSERT, UPDATE ON video TO {name}")
    yield name
    target.run(f"DROP OWNED BY {name}")
    target.run(f"DROP ROLE {name}")


@pytest.mark.parametrize("table", ["video", "{namespace}"])
@pytest.mark.parametrize("made", [VIEW, PARTITION, ROW_OF_ANOTHER])
def test_the_end_of_a_copy_removes_old_rows_wherever_the_sink_writes(
    made: str, table: str, target: PostgresTarget
) -> None:
    for statement in made.split(";"):
        target.run(statement)
    with opened(target.sink("^video$", table=table, id="{id}")) as sink:
        assert sink.faults() == []
        sink.write([message(1, "old"), message(10, "new")])
        sink.end_copy(version(5), OPLOG)
    assert target.run("SELECT id FROM video WHERE id IS NOT NULL") == [("new",)]


def test_rows_behind_a_view_are_taken_over(target: PostgresTarget) -> None:
    for statement in VIEW.split(";"):
        target.run(statement)
    target.run("INSERT INTO behind VALUES ('a', 1, 'oplog', now(), 'former/sink')")
    with opened(target.sink(table="video", id="{id}")) as sink:
        assert sink.adopt("former/sink") == 1
    assert target.run("SELECT oplog_owner FROM behind") == [("test/sink",)]


def test_a_view_that_takes_no_rows_is_none_of_the_tables_of_a_template(
    target: PostgresTarget,
) -> None:
    target.run(f"CREATE TABLE video ({COLUMNS})")
    target.run("CREATE VIEW report AS SELECT DISTINCT * FROM video")
    with opened(target.sink()) as sink:
        sink.write([message(1, "old"), message(10, "new")])
        sink.end_copy(version(5), OPLOG)
    assert target.run("SELECT id FROM report") == [("new",)]


@pytest.mark.parametrize("table", ["video", "{namespace}"])
def test_a_user_who_may_not_delete_is_told_by_validate_and_at_the_end_of_a_copy(
    table: str, target: PostgresTarget, role: str
) -> None:
    options = PostgresOptions(target.url.replace("postgres@", f"{role}@"), table=table, id="{id}")
    with opened(PostgresSink(options)) as sink:
        sink.write([message(1, "old")])
        (fault,) = sink.faults()
        assert fault.endswith(
            "the user may not delete rows: grant DELETE, or the end of a copy fails"
        )
        with pytest.raises(TargetError, match="the user may not delete rows: grant DELETE"):
            sink.end_copy(version(5), OPLOG)
