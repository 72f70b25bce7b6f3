"""The page about the operation of relays agrees with the commands and their output.

With OPLOG_UPDATE_DOCS=1 the generated part is written again.
"""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import click
import pytest

from oplog_relay import Backlog, Blocked, DatabaseSettings, LeaseState, MeterRead, RelaySettings
from oplog_relay.cli import main
from oplog_relay.commands.group import command
from oplog_relay.commands.run import description
from oplog_relay.commands.status import Status, lines
from oplog_relay.db.schema import ddl
from oplog_relay.model.note import note, read_note
from oplog_relay.model.place import OutboxPlace
from oplog_relay.watch.progress import progress
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets

PAGE = pages.OPERATE_RELAY
OUTPUTS = {
    snippet.first.split()[2]: snippet.code.splitlines()
    for snippet in snippets(PAGE)
    if snippet.first.startswith("$ oplog-relay ")
}
MINE = UUID("4ffe2e3e-a1d3-4ee8-ac0e-b9bee02d8a12")
READING = MeterRead(812.4, 4210, 12, 12, 1204, 3.2, 0)
REASON = "there is no topic default/orders (HTTP 404)"
SINCE = datetime(2026, 1, 31, 12, tzinfo=UTC)


def tables() -> Iterator[str]:
    """Yield a table of the commands with their arguments and options."""
    yield "| command | option | |\n|---|---|---|"
    for each in command.commands.values():
        pieces = each.collect_usage_pieces(click.Context(each))[1:]
        usage = " ".join([each.name or "", *pieces]).replace("|", "\\|")
        yield f"| `{usage}` | | {(each.help or '').partition(chr(10) * 2)[0]} |"
        for option in each.params:
            if isinstance(option, click.Option) and option.name != "settings":
                metavar = "" if option.is_flag else option.make_metavar(click.Context(each))
                default = f" Default: {option.default}." if isinstance(option.default, str) else ""
                if isinstance(option.default, int) and not option.is_flag:
                    default = f" Default: {option.default}."
                name = f"{option.opts[0]} {metavar}".strip().replace("|", "\\|")
                yield f"| | `{name}` | {option.help}{default} |"


def test_the_page_has_every_command_and_option() -> None:
    text = PAGE.read_text()
    table = "\n".join(tables())
    pattern = re.compile(r"(<!-- commands: .*? -->\n).*?(<!-- /commands -->)", re.DOTALL)
    written, parts = pattern.subn(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text)
    assert parts == 1
    if os.environ.get("OPLOG_UPDATE_DOCS"):
        PAGE.write_text(written)
    else:
        assert text == written, "write the generated part again with OPLOG_UPDATE_DOCS=1"


def test_the_lines_of_run_are_those_of_its_log() -> None:
    settings = RelaySettings("orders", DatabaseSettings("sqlite:///app.db"))
    _, start, leads, told = OUTPUTS["run"]
    assert start.endswith(f"oplog-relay VERSION: {description(settings)}")
    assert leads.endswith(f"leading begins: term 1, leader id {MINE}")
    assert told.endswith(f" INFO  oplog_relay: {progress(READING)}")


def test_the_status_is_that_of_the_command() -> None:
    blocked = Blocked(17, "orders", "42", REASON, SINCE, 3)
    place = OutboxPlace("postgresql://db.example.com/orders", "outbox")
    text = note("host-a", 4711, READING._replace(blocked=1), (blocked,), MINE, place)
    lease = LeaseState(False, "holder", 7, 9.5, text)
    marked = {str(MINE): 12, "other": 2}
    status = Status(True, lease, read_note(text), Backlog(1204, 3.2), marked)
    assert OUTPUTS["status"][1:] == lines("orders", status)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with an outbox and settings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relay.yaml").write_text('name: orders\ndatabase: {url: "sqlite:///app.db"}\n')
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        database.execute(ddl("sqlite"))
        database.execute(
            "INSERT INTO outbox (id, create_time, topic, key, value)"
            " VALUES (17, '2026-01-31T12:00:00Z', 'orders', '42', ?)",
            ["x" * 1024],
        )
        database.commit()
    return tmp_path


@pytest.mark.parametrize("name", ["skip", "pump"])
def test_an_output_is_that_of_the_command(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder.is_dir()
    # A slow machine takes longer than the time between two lines of `pump`.
    monkeypatch.setattr("oplog_relay.commands.pump._TELL", float("inf"))
    line, *told = OUTPUTS[name]
    assert main(line.split()[2:]) == 0
    rate = re.compile(r"[\d,]+ per second")
    out = rate.sub("… per second", capsys.readouterr().out)
    assert out.splitlines() == [rate.sub("… per second", each) for each in told]
