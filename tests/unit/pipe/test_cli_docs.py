"""The page about the operation of pipes agrees with the commands and their output.

With OPLOG_UPDATE_DOCS=1 the generated part is written again.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from oplog_pipe.cli import main
from oplog_pipe.commands.group import command
from oplog_pipe.commitlog import CommitLog, Mode, NewEntry, OffsetLog
from oplog_pipe.model.record import EntryRecord, encode_record
from tests.kits.documents import pages
from tests.kits.documents.snippets import Snippet, snippets

PAGE = pages.OPERATE_PIPE
# Of the entries of the folder.
TIME = "2026-01-31T12:00:00.000Z"
NOON = 1_769_860_800_000


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, each in group.commands.items():
        if isinstance(each, click.Group):
            yield from commands(each, f"{before}{name} ")
        else:
            yield f"{before}{name}", each


def tables() -> Iterator[str]:
    """Yield a table of the commands with their arguments and options."""
    yield "| command | option | |\n|---|---|---|"
    for name, each in commands(command):
        pieces = each.collect_usage_pieces(click.Context(each))[1:]
        usage = " ".join([name, *pieces]).replace("|", "\\|")
        yield f"| `{usage}` | | {(each.help or '').partition(chr(10) * 2)[0]} |".replace("\n", " ")
        for option in each.params:
            if isinstance(option, click.Option) and option.name != "settings":
                metavar = "" if option.is_flag else option.make_metavar(click.Context(each))
                default = f" Default: {option.default}." if isinstance(option.default, str) else ""
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


def record(number: int) -> EntryRecord:
    data = f'{{"timestamp":"{TIME}","parents":[],"type":"video","id":"x{number}"}}'
    position = f"{number:024x}"
    return EntryRecord(
        "system/oplog", position, "insert", f"x{number}", data=msgspec.Raw(data.encode())
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with the folder of a pipe, whose sink has stopped at offset 13."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipe.yaml").write_text(
        "dir: ./pipe\nsources: [{agents: [http://localhost:8042]}]\n"
        "sinks: [{name: search, type: file, path: out.jsonl}]\n"
    )
    log = CommitLog.open(tmp_path / "pipe")
    log.append([NewEntry(NOON, Mode.SYNC, "video", encode_record(record(n))) for n in range(17)])
    log.close()
    offsets = OffsetLog.open(tmp_path / "pipe", "search")
    offsets.write({"video": 13})
    offsets.close()
    return tmp_path


def shown() -> Iterator[tuple[Snippet, list[str]]]:
    """Yield the commands of the page, each with the output that follows."""
    found = [snippet for snippet in snippets(PAGE) if snippet.language]
    for number, snippet in enumerate(found):
        if snippet.language == "sh":
            after = found[number + 1 : number + 2]
            yield snippet, [each.code for each in after if each.language == "text"]


def test_the_commands_of_the_page_print_what_is_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.is_dir()
    count = 0
    for snippet, wanted in shown():
        for line in snippet.code.splitlines():
            assert main(line.split()[1:]) == 0, f"{line}\n{capsys.readouterr().err}"
            count += 1
        printed = capsys.readouterr().out
        if wanted:
            assert printed.rstrip() == wanted[0].rstrip()
    assert count == 7
