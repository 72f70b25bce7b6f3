"""The command line of oplog-pipe: help, mistakes and exit codes; ``validate`` without a network."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from oplog_pipe.cli import main
from oplog_pipe.commands.group import command
from oplogc import __version__
from tests.kits.paths import ROOT
from tests.kits.pipe.settings_file import LEAST, SettingsFile

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path)


@pytest.fixture
def settings(file: SettingsFile) -> str:
    return str(file.write(LEAST))


def refused(capsys: Captured, *arguments: str, code: int = 2) -> list[str]:
    """Return the sentences that refuse a command. Assert that nothing else is printed."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    sentences = err.splitlines()
    assert all(each.startswith("oplog-pipe: ") for each in sentences)
    return [each.removeprefix("oplog-pipe: ") for each in sentences]


def options(each: click.Command) -> list[click.Option]:
    if isinstance(each, click.Group):
        return [option for inner in each.commands.values() for option in options(inner)]
    return [option for option in each.params if isinstance(option, click.Option)]


def commands(each: click.Command, *names: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """Return all commands below a group with the words that call them."""
    if not isinstance(each, click.Group):
        return [(names, each)]
    return [
        found for name, inner in each.commands.items() for found in commands(inner, *names, name)
    ]


def test_each_command_and_each_option_has_a_help(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name, each in command.commands.items():
        assert f"  {name}  " in listed
        assert (each.help or "").partition("\n\n")[0] in listed
    for names, each in commands(command):
        assert main([*names, "--help"]) == 0
        shown = capsys.readouterr().out
        for option in options(each):
            assert option.opts[0] in shown
            assert option.help
        assert "-f" in [name for option in options(each) for name in option.opts]


def test_without_a_command_the_help_is_printed_as_a_mistake(capsys: Captured) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("Usage: oplog-pipe ")


def test_a_wrong_command_line_is_one_sentence_that_names_the_flag(
    capsys: Captured, settings: str
) -> None:
    sentences = {
        "nope": "no such command 'nope'",
        "validate": "-f: is missing; see --help",
        "validate -f": "option '-f' requires an argument",
        "validate -f F --nope": "no such option '--nope'",
        "validate -f F extra": "got unexpected extra argument (extra)",
        "validate -f no.yaml": "cannot read 'no.yaml': No such file or directory",
    }
    for line, sentence in sentences.items():
        arguments = [settings if word == "F" else word for word in line.split()]
        assert refused(capsys, *arguments) == [sentence]


def test_every_mistake_in_the_file_is_a_line(capsys: Captured, file: SettingsFile) -> None:
    path = file.write(LEAST.replace("path", "pth") + "listen: x\n")
    sentences = refused(capsys, "validate", "-f", str(path))
    assert [each.removeprefix(f"{path}:").split(": ")[:2] for each in sentences] == [
        ["3", "sinks[0].pth"], ["4", "listen"],
    ]  # fmt: skip


def test_validate_prints_the_effective_settings_if_asked(capsys: Captured, settings: str) -> None:
    assert main(["validate", "-f", settings, "--offline"]) == 0
    assert capsys.readouterr().out == "the settings are right: 1 source, 1 sink\n"
    assert main(["validate", "-f", settings, "--offline", "--show"]) == 0
    told = capsys.readouterr().out
    assert "max_segment_bytes: 1 GB\n" in told
    assert "- name: system/oplog\n" in told


def test_validate_imports_all_modules_and_tells_all_that_it_cannot(
    capsys: Captured, file: SettingsFile
) -> None:
    folder = file.path.parent
    (folder / "shape_of_validate.py").write_text("video = len\nnumber = 5\n")
    (folder / "broken_of_validate.py").write_text("1 / 0\n")
    steps = "shape_of_validate:video, shape_of_validate:number, 'shape_of_validate:x.y'"
    text = LEAST.replace("path: out.jsonl", f"path: out.jsonl, transforms: [fetch, {steps}]")
    text += "  - {name: own, type: 'broken_of_validate:Sink'}\n"
    text = text.replace("sinks: [", "sinks:\n  - ").replace("]}]\n", "]}\n")
    sentences = refused(capsys, "validate", "-f", str(file.write(text)), "--offline")
    assert [each.split(": ")[:2] for each in sentences] == [
        ["sink copy", "transforms[2]"],
        ["sink copy", "transforms[3]"],
        ["sink own", "broken_of_validate:Sink"],
    ]
    assert "ZeroDivisionError: division by zero" in sentences[2]
    file.write(text.replace(", shape_of_validate:number, 'shape_of_validate:x.y'", "")
               .partition("  - {name: own")[0])  # fmt: skip
    assert main(["validate", "-f", str(file.path), "--offline"]) == 0


@pytest.mark.parametrize(
    ("listen", "hint"),
    [
        ("", "set listen, and it tells its status while it runs"),
        ("listen: nowhere.invalid:1\n",
         "it tells its status while it runs; no answer from this pipe at nowhere.invalid:1"),
    ],
)  # fmt: skip
def test_a_status_without_a_log_tells_of_pipes_on_spark(
    capsys: Captured, file: SettingsFile, monkeypatch: pytest.MonkeyPatch, listen: str, hint: str
) -> None:
    monkeypatch.setattr("oplog_pipe.commands.status.ask", lambda _: None)
    path = file.write(LEAST + listen)
    assert refused(capsys, "status", "-f", str(path), code=1) == [
        f"{path.parent}/pipe holds no commit log; a pipe on Spark has none: {hint}"
    ]
    assert not (path.parent / "pipe").exists()


@pytest.mark.process
def test_the_package_can_be_run_and_names_the_extra_if_a_library_is_missing(
    tmp_path: Path,
) -> None:
    def run(*flags: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *flags, "-m", "oplog_pipe", "--version"],
            cwd=ROOT,
            env={"PYTHONPATH": f"{tmp_path}:{ROOT}:{ROOT / 'clients/python'}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert run().stdout == f"oplog-pipe {__version__}\n"
    (tmp_path / "yaml.py").write_text("raise ModuleNotFoundError('no', name='yaml')\n")
    done = run()
    assert done.returncode == 1
    assert done.stderr == (
        "oplog-pipe: yaml is missing; in the checkout of oplog, run:"
        " pip install -c constraints.txt '.[pipe]' ./clients/python\n"
    )
