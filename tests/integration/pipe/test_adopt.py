"""Pipes that share a table: refusals, and rows that are taken over."""

from pathlib import Path

import pytest

from oplog_pipe.cli import main
from oplog_pipe.commitlog import CommitLog
from oplog_pipe.config import load
from oplog_pipe.deliver.factory import build
from oplog_pipe.message import version_of
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.postgres.sink import PostgresSink
from tests.kits.pipe.messages import message, version
from tests.kits.pipe.targets import PostgresTarget
from tests.kits.servers.postgres import PostgresServer


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


def settings(folder: Path, url: str, name: str | None = None, create: str = "true") -> str:
    path = folder / "pipe.yaml"
    path.write_text(
        (f"name: {name}\n" if name else "")
        + "dir: ./pipe\n"
        + "sources: [{agents: [http://localhost:1]}]\n"
        + f"sinks: [{{name: rows, type: postgres, url: '{url}', create: {create}}}]\n"
    )
    return str(path)


def sink_of(file: str) -> PostgresSink:
    found = load(file)
    sink = build(found.sinks[0], found.root)
    assert isinstance(sink, PostgresSink)
    return sink


def test_a_folder_without_a_name_adopts_the_rows_of_a_lost_one(
    tmp_path: Path, target: PostgresTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(tmp_path, target.url)
    lost = sink_of(file)
    lost.own(Owner("4711", "rows", lambda: version(9)))
    lost.write([message(1), message(2, "b")])
    lost.close()
    log = CommitLog.open(tmp_path / "pipe")
    newest = version_of(log.created, 0)
    owner = Owner(log.id, "rows", lambda: newest)
    log.close()
    assert main(["adopt", "rows", "--from", "4711/rows", "-f", file]) == 0
    told = capsys.readouterr().out
    assert told == f"rows: took over 2 rows of 4711/rows; they belong to {owner}\n"
    assert target.run("SELECT DISTINCT oplog_owner FROM video") == [(str(owner),)]
    assert main(["adopt", "rows", "--from", str(owner), "-f", file]) == 2
    assert "is this sink itself" in capsys.readouterr().err
    file = settings(tmp_path, target.url, "shop")
    assert main(["adopt", "rows", "--from", str(owner), "-f", file]) == 0
    assert target.run("SELECT DISTINCT oplog_owner FROM video") == [("shop/rows",)]


def test_rows_that_are_newer_than_the_folder_are_not_adopted(
    tmp_path: Path, target: PostgresTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(tmp_path, target.url, "shop")
    CommitLog.open(tmp_path / "pipe", clock=lambda: 5).close()
    lost = sink_of(file)
    lost.own(Owner("old", "rows", lambda: version(9)))
    lost.write([message(1)])
    lost.close()
    assert main(["adopt", "rows", "--from", "old/rows", "-f", file]) == 2
    assert "another folder or checkpoint has written the row" in capsys.readouterr().err
    assert target.run("SELECT oplog_owner FROM video") == [("old/rows",)]


def test_without_create_validate_prints_the_statement_that_a_table_needs(
    tmp_path: Path, target: PostgresTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    target.run(
        "CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
        ' "timestamp" timestamptz, data jsonb)'
    )
    statement = 'ALTER TABLE "public"."video" ADD COLUMN IF NOT EXISTS oplog_owner text'
    main(["validate", "-f", settings(tmp_path, target.url, create="false")])
    assert f"sink rows: the target needs a change; run: {statement}\n" in capsys.readouterr().err
    target.run(statement)
    main(["validate", "-f", settings(tmp_path, target.url, create="false")])
    assert "sink rows: postgres can be opened" in capsys.readouterr().out
