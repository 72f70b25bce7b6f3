"""Two outboxes whose relays have one name by mistake: the second one is told."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from oplog_relay.cli import main
from oplog_relay.db import open_outbox
from oplog_relay.schema import ddl
from oplog_relay.settings import DatabaseSettings, Table
from tests.kits.agents.agent import Agent
from tests.kits.mongo.agents import wait_for
from tests.kits.relay.processes import BEGINS, RelayProcess, write_settings
from tests.kits.servers.postgres import GUARDED_USER, PostgresServer

FAST = {"poll": 0.05, "meter": 0.1}
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Agent(tmp_path) as agent:
        yield agent


def outbox(folder: Path, name: str, agent: Agent) -> Path:
    """Create an outbox in SQLite, and return the settings of a relay on it."""
    file = folder / f"{name}.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(ddl("sqlite"))
    settings = folder / f"{name}.yaml"
    return write_settings(settings, "orders", [agent.url], f"sqlite:///{file}", **FAST)


def test_a_lease_that_is_held_for_another_outbox_is_a_problem_of_all_commands(
    tmp_path: Path, agent: Agent, capsys: Captured
) -> None:
    first, second = (outbox(tmp_path, name, agent) for name in ("first", "second"))
    with RelayProcess(first) as leader:
        leader.wait_leads()

        def noted() -> bool:
            main(["status", "-f", str(first), "--json"])
            return "outbox" in (json.loads(capsys.readouterr().out)["leader"] or {})

        wait_for("the note", noted)
        sentence = (
            f"(process {leader.pid}) for table outbox of sqlite:///{tmp_path}/first.db, so no row"
            f" of table outbox of sqlite:///{tmp_path}/second.db is sent: give one of the two"
            " groups another name"
        )
        assert main(["validate", "-f", str(second)]) == 1
        told = capsys.readouterr().err
        assert told.startswith("oplog-relay: name: the lease orders is held by ")
        assert sentence in told
        assert main(["status", "-f", str(second)]) == 1
        told = capsys.readouterr().out
        assert f"leader: moves table outbox of sqlite:///{tmp_path}/first.db\n" in told
        assert sentence in told.splitlines()[-1]
        for command in ("validate", "status"):
            assert main([command, "-f", str(first)]) == 0
            assert "another name" not in "".join(capsys.readouterr())
        with RelayProcess(second) as rival:
            assert sentence in rival.wait_log("another name")
            assert leader.stop() == 0
            rival.wait_log(BEGINS)
            assert rival.count("another name") == 1


async def test_identities_are_those_of_files_and_tables_not_of_paths(tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute(ddl("sqlite"))
    os.link(tmp_path / "a.db", tmp_path / "linked.db")
    found = {}
    for name in ("a.db", "b.db", "linked.db"):
        opened = open_outbox(DatabaseSettings(f"sqlite:///{tmp_path / name}"))
        found[name] = await opened.identity()
        await opened.dispose()
    assert found["a.db"] == found["linked.db"] != found["b.db"]


async def test_identities_in_postgresql_are_those_of_the_server_not_of_urls(
    postgres: PostgresServer,
) -> None:
    url, other = postgres.new_database(), postgres.new_database()
    name = url.rpartition("/")[2]
    for each in (url, other):
        with psycopg.connect(each) as database:
            database.execute(ddl("postgres").encode())
    postgres.run(f"CREATE USER {GUARDED_USER} PASSWORD 'secret'")
    found = []
    for each, table in (
        (url, "outbox"),
        (postgres.socket_url(name), "public.outbox"),
        (postgres.url(name, GUARDED_USER, "secret"), "outbox"),
        (other, "outbox"),
    ):
        opened = open_outbox(DatabaseSettings(each, Table(name=table)))
        found.append(await opened.identity())
        await opened.dispose()
    postgres.run(f"DROP USER {GUARDED_USER}")
    assert found[0].startswith("postgresql ")
    assert found[0].endswith(f" {name} public outbox")
    assert found[0] == found[1] == found[2] != found[3]
