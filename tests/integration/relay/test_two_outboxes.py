"""Two outboxes whose relays have one name by mistake: the second one is told."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from oplog_relay.cli import main
from oplog_relay.db import open_outbox
from oplog_relay.db.schema import ddl
from oplog_relay.db.sqlite.outbox import identity_of, number_of
from oplog_relay.model.settings import DatabaseSettings, Table
from oplog_relay.outbox import OutboxWriter
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.mongo.agents import wait_for
from tests.kits.processes.disk import SmallDisk
from tests.kits.relay.processes import BEGINS, RelayProcess, write_settings
from tests.kits.servers.postgres import PostgresServer

# Nobody loses the lead because the machine is busy.
LIMITS = {"poll": 0.05, "meter": 0.1, "heartbeat": 60.0, "session": 120.0}
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Agent(tmp_path) as agent:
        yield agent


def outbox_of(file: Path, *, is_wal: bool = False) -> None:
    """Create an outbox in SQLite, if there is none."""
    with closing(sqlite3.connect(file)) as database:
        if is_wal:
            database.execute("PRAGMA journal_mode = WAL")
        database.execute(ddl("sqlite").replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))


def outbox(folder: Path, name: str, agent: Agent) -> Path:
    """Create an outbox in SQLite, and return the settings of a relay on it."""
    file = folder / f"{name}.db"
    outbox_of(file)
    settings = folder / f"{name}.yaml"
    return write_settings(settings, "orders", [agent.url], f"sqlite:///{file}", **LIMITS)


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


async def identity(file: Path) -> str:
    opened = open_outbox(DatabaseSettings(f"sqlite:///{file}"))
    found = await opened.identity()
    await opened.dispose()
    return found


async def test_identities_are_those_of_files_and_tables_not_of_paths(tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        outbox_of(tmp_path / name)
    os.link(tmp_path / "a.db", tmp_path / "linked.db")
    found = {name: await identity(tmp_path / name) for name in ("a.db", "b.db", "linked.db")}
    assert found["a.db"] == found["linked.db"] != found["b.db"]


@pytest.mark.parametrize("is_numbered", [True, False])
def test_files_with_one_number_are_told_apart_by_their_file_systems(
    is_numbered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_numbered:  # as some file systems are
        monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_fsid=0))
    with SmallDisk(tmp_path / "a", "size=1m") as a, SmallDisk(tmp_path / "b", "size=1m") as b:
        files = [disk.folder / "app.db" for disk in (a, b)]
        for file in files:
            file.touch()
        numbers = [number_of(file) or (0, 0) for file in files]
        assert numbers[0][1] == numbers[1][1]
        first, again, second = map(identity_of, [files[0], *files], [numbers[0], *numbers])
        assert first == again != second


def test_a_file_that_takes_the_place_of_the_outbox_is_moved_and_no_rival(
    tmp_path: Path, agent: Agent, capsys: Captured
) -> None:
    Topic(agent, "default/orders").create()
    settings, file = outbox(tmp_path, "app", agent), tmp_path / "app.db"
    for each in (file, tmp_path / "new.db"):
        outbox_of(each, is_wal=True)
    with closing(sqlite3.connect(tmp_path / "new.db")) as database:
        OutboxWriter().message(database, "orders", key="a", value="v")
        database.commit()

    def rows() -> int:
        with closing(sqlite3.connect(file)) as database:
            return int(database.execute("SELECT count(*) FROM outbox").fetchone()[0])

    def noted() -> bool:
        main(["status", "-f", str(settings), "--json"])
        leader = json.loads(capsys.readouterr().out)["leader"] or {}
        number = number_of(file)
        return number is not None and identity_of(file, number) in leader.get("outbox", "")

    with RelayProcess(settings) as relay:
        wait_for("the note", noted)
        for name in ("app.db-wal", "app.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / "new.db").rename(file)
        wait_for("the row", lambda: rows() == 0)
        wait_for("the new note", noted)
        for command in ("status", "validate"):
            assert main([command, "-f", str(settings)]) == 0
        assert relay.stop() == 0
        assert relay.count(f"the file {file} has been replaced") == 1
        assert relay.count("another name") == 0
    assert "another name" not in capsys.readouterr().err


async def test_identities_in_postgresql_are_those_of_the_server_not_of_urls(
    postgres: PostgresServer,
) -> None:
    url, other = postgres.new_database(), postgres.new_database()
    name = url.rpartition("/")[2]
    for each in (url, other):
        with psycopg.connect(each) as database:
            database.execute(ddl("postgres").encode())
    found = []
    with postgres.guarded_user("secret") as user:
        for each, table in (
            (url, "outbox"),
            (postgres.socket_url(name), "public.outbox"),
            (postgres.url(name, user, "secret"), "outbox"),
            (other, "outbox"),
        ):
            opened = open_outbox(DatabaseSettings(each, Table(name=table)))
            found.append(await opened.identity())
            await opened.dispose()
    assert found[0].startswith("postgresql ")
    assert found[0].endswith(f" {name} public outbox")
    assert found[0] == found[1] == found[2] != found[3]


async def test_identities_in_postgresql_differ_although_names_have_blanks(
    postgres: PostgresServer,
) -> None:
    found = []
    for database, table in (("blank outbox", "public.t"), ("blank", "outbox.public t")):
        postgres.run(f'CREATE DATABASE "{database}"')
        with psycopg.connect(postgres.url(database.replace(" ", "%20"))) as connection:
            connection.execute("CREATE SCHEMA outbox")
            connection.execute(ddl("postgres", Table(name=table)).encode())
        opened = open_outbox(
            DatabaseSettings(postgres.url(database.replace(" ", "%20")), Table(name=table))
        )
        found.append(await opened.identity())
        await opened.dispose()
        postgres.run(f'DROP DATABASE "{database}" WITH (FORCE)')
    assert found[0] != found[1]
