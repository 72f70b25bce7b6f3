"""The commands of oplog-relay that need no agent, on an outbox in SQLite."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click
import pytest

from oplog_relay import DatabaseSettings
from oplog_relay.cli import main
from oplog_relay.commands.group import command
from oplog_relay.db.operated import OperatedRow, OperatedTable
from oplog_relay.db.schema import ddl
from oplog_relay.outbox import OutboxWriter

Captured = pytest.CaptureFixture[str]
LEADER = "4ffe2e3e-a1d3-4ee8-ac0e-b9bee02d8a12"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        database.execute(ddl("sqlite"))
        yield database


@pytest.fixture
def settings(database: sqlite3.Connection, tmp_path: Path) -> str:
    return write(tmp_path, {})


def write(folder: Path, database: dict[str, object], **others: object) -> str:
    """Write a file of settings in YAML's subset JSON, and return its path."""
    url = f"sqlite:///{folder / 'app.db'}"
    path = folder / "relay.yaml"
    path.write_text(json.dumps({"name": "orders", "database": {"url": url, **database}, **others}))
    return str(path)


def refused(capsys: Captured, *arguments: str, code: int = 2) -> list[str]:
    """Return the sentences that refuse a command. Assert that nothing else is printed."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    sentences = err.splitlines()
    assert all(each.startswith("oplog-relay: ") for each in sentences)
    return [each.removeprefix("oplog-relay: ") for each in sentences]


def rows(database: sqlite3.Connection) -> list[tuple[str, str, str | None]]:
    return database.execute("SELECT topic, key, value FROM outbox ORDER BY id").fetchall()


def test_each_command_and_each_option_has_a_help(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert len(command.commands) == 6
    for name, each in command.commands.items():
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        summary = (each.help or "").partition("\n\n")[0]
        assert summary in listed
        assert "..." not in summary
        for option in each.params:
            if isinstance(option, click.Option):
                assert option.opts[0] in shown
                assert option.help


def test_without_a_command_the_help_is_printed_as_a_mistake(capsys: Captured) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("Usage: oplog-relay ")


def test_a_wrong_command_line_is_one_sentence_that_names_the_flag(
    capsys: Captured, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = {
        "nope": "no such command 'nope'",
        "run": "-f: is missing; see --help",
        "run -f": "option '-f' requires an argument",
        "run -f F --nope": "no such option '--nope'",
        "run -f F --log-format xml": "--log-format: 'xml' is not one of 'text', 'json'",
        "status -f F extra": "got unexpected extra argument (extra)",
        "skip -f F": "ID...: is missing; see --help",
        "skip 0 -f F": "ID...: '0' is not a whole number of at least 1",
        f"skip {2**63} -f F": f"ID...: '{2**63}' is not a whole number of at least 1",
        "schema mysql": "DATABASE: 'mysql' is not one of 'postgres', 'sqlite'",
        "schema sqlite --table a.b.c": ("database.table: 'a.b.c' must be table or schema.table"),
        "pump -f F --keys -1": "--keys: '-1' is not a whole number of at least 1",
        "pump -f F --interval 3x": "--interval: '3x' is not a duration, such as 500ms, 20s, 10m,"
        " 12h, 30d or 2w",
        "pump -f F --size 1048577": "--size: has 1,048,577 bytes, more than 1,048,576",
    }
    for line, sentence in sentences.items():
        arguments = [settings if word == "F" else word for word in line.split()]
        assert refused(capsys, *arguments) == [sentence]


@pytest.mark.parametrize("name", ["run", "validate", "status", "pump", "skip 1"])
def test_every_mistake_in_the_file_is_a_line(name: str, capsys: Captured, tmp_path: Path) -> None:
    path = write(tmp_path, {"tabel": "x"}, agents=["ftp://h"], limits={"poll": "often"})
    sentences = refused(capsys, *name.split(), "-f", path)
    assert [each.split(": ")[1] for each in sentences] == [
        "agents.urls", "database.tabel", "limits.poll",
    ]  # fmt: skip


def test_a_file_that_is_missing_is_named(capsys: Captured, tmp_path: Path) -> None:
    (sentence,) = refused(capsys, "run", "-f", str(tmp_path / "no.yaml"))
    assert sentence == f"cannot read '{tmp_path / 'no.yaml'}': No such file or directory"


def test_the_schema_has_the_names_of_the_flag_else_of_the_file(
    capsys: Captured, tmp_path: Path
) -> None:
    path = write(tmp_path, {"table": "mail", "columns": {"key": "kafka_key"}})
    assert main(["schema", "postgres", "-f", path]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith('CREATE TABLE "mail" (')
    assert '"kafka_key" varchar(100) NOT NULL' in printed
    assert main(["schema", "postgres", "-f", path, "--table", "post"]) == 0
    assert capsys.readouterr().out == printed.replace("mail", "post")


def test_the_schema_can_be_run(capsys: Captured) -> None:
    assert main(["schema", "sqlite"]) == 0
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(capsys.readouterr().out)
        OutboxWriter().message(database, "t", key="k", value="v")
        assert rows(database) == [("t", "k", "v")]


def test_skip_shows_a_row_without_its_value_and_deletes_it(
    capsys: Captured, settings: str, database: sqlite3.Connection
) -> None:
    values = [(1, "secret"), (2, None), (3, "x\n" * 2000)]
    database.executemany(
        "INSERT INTO outbox (id, create_time, topic, key, value)"
        " VALUES (?, '2026-01-31T12:00:00.500Z', 't', 'k\n', ?)",
        values,
    )
    database.commit()
    assert main(["skip", "3", "1", "3", "-f", settings, "--yes"]) == 0
    told = "topic t, key k\\n, 2026-01-31 12:00:00.500+00:00, value"
    assert capsys.readouterr().out.splitlines() == [
        f"row 3: {told} 4,000 characters",
        f"row 1: {told} 6 characters",
        "row 3 is deleted",
        "row 1 is deleted",
        "A blocked key goes on at the relay's next attempt, within 30.0 s.",
    ]
    assert main(["skip", "2", "-f", settings, "--yes"]) == 0
    assert capsys.readouterr().out.startswith(f"row 2: {told} null\n")
    assert rows(database) == []


def test_skip_shows_the_value_if_asked(
    capsys: Captured, settings: str, database: sqlite3.Connection
) -> None:
    database.execute("INSERT INTO outbox (topic, key, value) VALUES ('t', 'k', 'a\x1b[31m')")
    database.commit()
    assert main(["skip", "1", "-f", settings, "--show-value", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "a\\x1b[31m"


def test_skip_tells_of_rows_that_do_not_exist(
    capsys: Captured, settings: str, database: sqlite3.Connection
) -> None:
    OutboxWriter().message(database, "t", key="k", value="v")
    database.commit()
    assert main(["skip", "7", "1", "-f", settings, "--yes"]) == 1
    out, err = capsys.readouterr()
    assert err == "oplog-relay: there is no row 7 in outbox\n"
    assert "row 1 is deleted\n" in out
    assert refused(capsys, "skip", "1", "-f", settings, code=1) == ["there is no row 1 in outbox"]


def test_skip_deletes_nothing_without_a_yes(
    capsys: Captured, settings: str, database: sqlite3.Connection
) -> None:
    OutboxWriter().message(database, "t", key="k", value="v")
    database.commit()
    assert main(["skip", "1", "-f", settings]) == 2
    assert capsys.readouterr().err == ("oplog-relay: give --yes: there is no terminal to ask at\n")
    assert len(rows(database)) == 1


def test_skip_deletes_a_row_whose_text_is_damaged(
    settings: str, database: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    database.execute(
        "INSERT INTO outbox (create_time, topic, key, value)"
        " VALUES ('soon', CAST(x'ff' AS TEXT), x'6bfe', CAST(x'00ff' AS TEXT))"
    )
    database.commit()
    assert main(["skip", "1", "-f", settings, "--show-value", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        r"row 1: topic \xff, key k\xfe, soon, value 2 characters",
        r"\x00\xff",
    ]
    assert rows(database) == []


def test_skip_knows_the_names_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"table": "my outbox", "columns": {"id": "100%", "value": "?"}})
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        database.execute('CREATE TABLE "my outbox" ("100%" INTEGER PRIMARY KEY, create_time,'
                         ' topic, key, "?", header_keys, header_values, leader_id)')  # fmt: skip
        database.execute('INSERT INTO "my outbox" VALUES (9, 0, 1, 2, 3, 4, 5, 6)')
        database.commit()
        assert main(["skip", "9", "-f", path, "--yes"]) == 0
        assert database.execute('SELECT count(*) FROM "my outbox"').fetchone() == (0,)


def test_a_database_that_cannot_be_used_ends_a_command_with_a_sentence(
    capsys: Captured, tmp_path: Path
) -> None:
    path = write(tmp_path, {})
    assert refused(capsys, "skip", "1", "-f", path, "--yes", code=1) == [
        "SQLite (database.url): unable to open database file"
    ]
    assert not (tmp_path / "app.db").exists()
    (tmp_path / "app.db").touch()
    assert refused(capsys, "pump", "-f", path, code=1) == [
        "SQLite (database.url): no such table: outbox"
    ]


def test_pump_writes_exactly_the_rows_of_its_transactions(
    capsys: Captured, settings: str, database: sqlite3.Connection
) -> None:
    line = f"pump -f {settings} --keys 3 --records 4 --count 2 --interval 0 --size 60 --topic n/t"
    assert main(line.split()) == 0
    assert capsys.readouterr().out.startswith("8 rows, ")
    written = rows(database)
    assert [(topic, key) for topic, key, _ in written] == [
        ("n/t", f"key-{number % 3}") for number in range(8)
    ]
    values = [value or "" for *_, value in written]
    assert [json.loads(value)["number"] for value in values] == [*range(8)]
    assert {len(value) for value in values} == {60}


def test_pump_writes_rows_without_values_and_operations(
    settings: str, database: sqlite3.Connection
) -> None:
    for flags in ("--blank", "--topic oplog", "--topic oplog --blank"):
        line = f"pump -f {settings} --keys 1 --records 1 --count 1 {flags}"
        assert main(line.split()) == 0
    message, update, delete = rows(database)
    assert message == ("pump", "key-0", None)
    for row, event in ((update, "update"), (delete, "delete")):
        assert row[:2] == ("oplog", "pump/key-0")
        assert json.loads(row[2] or "")["event"] == event


def test_skip_leaves_a_row_that_has_got_the_id_of_the_one_that_was_shown(
    settings: str,
    database: sqlite3.Connection,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    insert = "INSERT INTO outbox (id, topic, key, value) VALUES (1, 't', 'k', ?)"
    database.execute(insert, ("old",))
    database.commit()
    find = OperatedTable.find

    def find_and_replace(table: OperatedTable, ids: Sequence[int]) -> list[OperatedRow]:
        monkeypatch.setattr(OperatedTable, "find", find)
        found = find(table, ids)
        database.execute("DELETE FROM outbox")
        database.execute(insert, ("new",))
        database.commit()
        return found

    monkeypatch.setattr(OperatedTable, "find", find_and_replace)
    assert main(["skip", "1", "-f", settings, "--yes"]) == 1
    assert capsys.readouterr().err == "oplog-relay: row 1 is gone, or is not what it was\n"
    assert [value for *_, value in rows(database)] == ["new"]
    assert main(["skip", "1", "-f", settings, "--yes"]) == 0
    assert rows(database) == []


def test_the_table_counts_marked_rows_by_leader(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.executemany(
        "INSERT INTO outbox (topic, key, leader_id) VALUES ('t', 'k', ?)",
        [("other",), *((f"{LEADER[:-1]}{mark}",) for mark in (1, 1)), (None,), (LEADER,)],
    )
    database.commit()
    url = f"sqlite:///{tmp_path / 'app.db'}"
    with OperatedTable(DatabaseSettings(url)) as table:
        leader = f"{LEADER[:24]}000000000000"
        assert table.marked(100) == {leader: 3, "other": 1}
        assert table.marked(4) == {leader: 2, "other": 1}


def test_an_address_for_metrics_that_is_none_is_refused_by_the_name_of_its_flag(
    settings: str, capsys: Captured
) -> None:
    (sentence,) = refused(capsys, "run", "-f", settings, "--metrics-listen", "nowhere")
    assert sentence.startswith("--metrics-listen: 'nowhere' is not an address such as :9108")
