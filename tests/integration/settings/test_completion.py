"""Completion in shells, asked for as the scripts for bash, zsh and fish do."""

import os
import shutil
import subprocess
import sys

import pytest

from oplog_kit.command.flags import flags_of
from oplogd.config.settings import Settings
from tests.kits.agents.agent import DEADLINE
from tests.kits.processes import command_lines, forked
from tests.kits.processes.command_lines import completion_script, completions

PROGRAMS = list(command_lines.PROGRAMS.items())


def test_every_flag_of_the_agent_is_offered() -> None:
    offered = {text for _, text in completions("oplogd", "--")}
    assert offered == {flag.name for flag in flags_of(Settings)} | {"--help", "--version"}


@pytest.mark.parametrize(
    ("module", "words", "offered"),
    [
        ("oplogd", ["--tls"], ["--tls-certificate", "--tls-key"]),
        ("oplogd", ["--log-format", ""], ["text", "json"]),
        ("oplogd", ["--log-format=j"], ["json"]),
        ("oplogd", ["--max-clients", "none", "--log-collection", "p"], ["plain"]),
        ("oplog_sync", ["--mongo-url-"], ["--mongo-url-file"]),
        ("oplog_sync", ["--format", ""], ["json", "parquet", "orc", "csv", "jdbc"]),
        ("oplogc.tail", ["--sta"], ["--state-file"]),
        ("oplogc.tail", ["--color", "a"], ["auto", "always"]),
        ("oplogc.ctl", ["to"], ["token", "topic"]),
        ("oplogc.ctl", ["token", ""], ["create", "show"]),
        ("oplogc.ctl", ["token", "create", "--par"], ["--parents"]),
        ("oplogc.ctl", ["topic", "p"], ["peek", "pointers", "poll", "publish"]),
        ("oplogc.ctl", ["topic", "follow", "t", "--st"], ["--state-file"]),
        ("oplogc.ctl", ["topic", "update", "t", "--ttl", "d"], ["default"]),
    ],
)
def test_flags_and_choices_are_completed(module: str, words: list[str], offered: list[str]) -> None:
    assert completions(module, *words) == [("plain", text) for text in offered]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("oplogd", ["--store", "op"]),
        ("oplogd", ["--password-file", "op"]),
        ("oplog_sync", ["--report", "op"]),
        ("oplog_sync", ["op"]),
        ("oplogc.tail", ["--state-file", "op"]),
        ("oplogc.ctl", ["topic", "follow", "t", "--state-file", "op"]),
        ("oplogc.ctl", ["topic", "list", "--password-file", "op"]),
        ("oplogc.ctl", ["token", "create", "--key", "op"]),
    ],
)
def test_names_of_files_are_left_to_the_shell(module: str, words: list[str]) -> None:
    assert completions(module, *words) == [("file", "op")]


@pytest.mark.parametrize(("module", "program"), PROGRAMS)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_it_can_read(module: str, program: str, shell: str) -> None:
    script = completion_script(module, program, shell)
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    assert f"{variable}={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, check=True)


@pytest.mark.parametrize(("module", "program"), PROGRAMS)
@pytest.mark.parametrize("flag", ["--help", "--version", "bash_source"])
def test_a_stdout_that_fails_ends_without_a_traceback(module: str, program: str, flag: str) -> None:
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    environ = {**os.environ, **({} if flag.startswith("--") else {variable: flag})}
    command = [sys.executable, "-m", module, flag]
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed, open("/dev/full", "wb") as full:
        full_sentence = f"{program}: cannot write to stdout: No space left on device\n"
        for stdout, ended in ((closed, (0, "")), (full, (1, full_sentence))):
            done = forked.run(
                command,
                env=environ,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                timeout=DEADLINE,
            )
            assert (done.returncode, done.stderr) == ended
