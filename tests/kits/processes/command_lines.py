"""Helpers for tests of command lines."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from oplog_kit.command.settings import SettingsCommand
from tests.kits.agents.agent import DEADLINE
from tests.kits.processes import forked

# Module -> command.
PROGRAMS = {
    "oplogd": "oplogd",
    "oplog_sync": "oplog-sync",
    "oplogc.tail": "oplog-tail",
    "oplogc.ctl": "oplogctl",
}


def refusal(
    command: SettingsCommand[Any],
    capsys: pytest.CaptureFixture[str],
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return the sentence that refuses these settings. Assert that nothing else is printed."""
    with pytest.raises(SystemExit) as ended:
        command.parse(argv, environ or {})
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    (sentence,) = err.splitlines()
    assert sentence.startswith(f"{command.name}: ")
    return sentence.removeprefix(f"{command.name}: ")


def completions(module: str, *words: str) -> list[tuple[str, str]]:
    """Return (kind, text) for the last of `words`, as the script for bash asks for them."""
    program = PROGRAMS[module]
    answer = _ask(
        module,
        program,
        "bash_complete",
        COMP_WORDS=" ".join([program, *words]),
        COMP_CWORD=str(len(words)),
    )
    return [(kind, text) for kind, _, text in (line.partition(",") for line in answer.splitlines())]


def completion_script(module: str, program: str, shell: str) -> str:
    return _ask(module, program, f"{shell}_source")


def _ask(module: str, program: str, instruction: str, **more: str) -> str:
    variable = "_" + re.sub(r"\W", "_", program).upper() + "_COMPLETE"
    ended = forked.run(
        [sys.executable, "-m", module],
        env={**os.environ, variable: instruction, **more},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout
