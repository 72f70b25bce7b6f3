"""A shell runs Python programs as forks: the same streams, signals and exit codes."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.processes.commands import Commands

pytestmark = pytest.mark.process

SLEEPS = """
import sys, time
try:
    print("ready", flush=True)
    time.sleep(3600)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    with Commands(tmp_path / "bin", {"python": "", "oplogctl": "-m oplogc.ctl"}):
        yield {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def run(code: str, folder: Path, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", code], cwd=folder, env=environ, input="a line\n",
        capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip


def test_a_script_has_the_streams_the_folder_and_the_environment_of_its_shell(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "script.py").write_text(
        "import os, sys\n"
        "print(sys.argv, os.getcwd(), os.environ['OWN'], input())\n"
        "sys.exit('an error')\n"
    )
    done = run("OWN=value python script.py 'a b' | cat; exit ${PIPESTATUS[0]}", tmp_path, environ)
    assert done.stdout == f"['script.py', 'a b'] {tmp_path} value a line\n"
    assert (done.stderr, done.returncode) == ("an error\n", 1)


@pytest.mark.parametrize("code", ["python -c 'print(1)'", "python - <<< 'print(1)'"])
def test_a_program_that_cannot_be_forked_starts_a_new_python(
    code: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    assert run(code, tmp_path, environ).stdout == "1\n"


def test_a_module_runs_with_the_arguments_of_the_command(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    assert run("oplogctl --version", tmp_path, environ).stdout.startswith("oplogctl ")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 7), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_signal_for_the_command_reaches_the_program(
    number: signal.Signals, code: int, tmp_path: Path, environ: dict[str, str]
) -> None:
    with subprocess.Popen(
        ["bash", "-c", "exec python sleeps.py"], cwd=tmp_path, env=environ,
        stdout=subprocess.PIPE, text=True,
        # A shell starts background processes with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(DEADLINE) == code
        assert process.stdout.read() == ""  # the program has ended and closed it
