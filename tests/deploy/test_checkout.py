"""The first commands of the documents, run in a copy of the checkout."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy2

import pytest

import oplogd
from tests.deploy.test_install_commands import tracked
from tests.kits.agents.agent import DEADLINE
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.paths import ROOT
from tests.kits.servers.ports import free_port


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy2(path, target)
    return folder


# Lends pip to a new environment, too: `python3 -m venv` would take 5 s to install it.
PYTHON = f"""#!/bin/sh
if [ "$*" != "-m venv $3" ]; then
    exec {sys.executable} "$@"
fi
{sys.executable} -m venv --without-pip "$3" && printf '%s\\n' "#!$3/bin/python" \
    'from pip._internal.cli.main import main' 'raise SystemExit(main())' >"$3/bin/pip" &&
    chmod +x "$3/bin/pip"
"""


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables with a free port, and with the packages of this environment."""
    programs = tmp_path_factory.mktemp("bin")
    (programs / "python3").write_text(PYTHON)
    (programs / "python3").chmod(0o755)
    lent = [path for path in sys.path if path.endswith("-packages")]
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VIRTUAL_ENV", "MAKE", "PYTHONDONTWRITEBYTECODE"))
    }
    return {
        **inherited,
        "PATH": os.pathsep.join(
            [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHONPATH": os.pathsep.join(lent),
        "PIP_NO_COMPILE": "1",  # the commands compile what they need
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # means: without isolation
        "OPLOGD_LISTEN": f"127.0.0.1:{free_port()}",
    }


@contextmanager
def started(
    command: str, folder: Path, environ: dict[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command in a process group of its own, as a terminal does."""
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environ, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        # A shell starts background processes with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def press_ctrl_c(process: "subprocess.Popen[str]") -> str:
    """Interrupt it and return the rest of its output."""
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=DEADLINE)
    assert "Traceback" not in rest, rest
    return rest


def lines_until(process: "subprocess.Popen[str]", words: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or words not in lines[-1]:
        line = process.stdout.readline()
        assert line, "".join(lines)
        lines.append(line)
    return lines


def run(command: str, folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environ,
        capture_output=True, text=True, timeout=10 * DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(document: Path, first: str) -> str:
    """Return the snippet of a document that begins with these words."""
    (found,) = [each.code for each in snippets(document) if each.first.startswith(first)]
    return found


def test_the_demo_of_the_readme_runs_twice_and_ends_quietly(
    checkout: Path, environ: dict[str, str]
) -> None:
    command = shown(ROOT / "README.md", "make demo").splitlines()[0]
    for _ in range(2):
        with started(f"exec {command}", checkout, environ) as demo:
            lines = lines_until(demo, "Ctrl-C")
            pasted = [line.strip() for line in lines if line.startswith("    curl")]
            assert len(pasted) == 3
            assert all(re.match("curl -sN? ", line) for line in pasted)
            assert run(pasted[0], checkout, environ) == "204\n"
            for line in pasted[1:]:  # the producer goes on by itself
                with started(f"exec {line}", checkout, environ) as curl:
                    assert lines_until(curl, "id: ")
                    press_ctrl_c(curl)
            press_ctrl_c(demo)


def test_the_commands_are_there_once_the_install_lines_were_pasted(
    checkout: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    install = shown(ROOT / "README.md", "python3 -m venv ~/oplog-try")
    assert install == shown(pages.QUICKSTART, "python3 -m venv ~/oplog-try")
    activate = "; ".join(install.splitlines()[-2:])
    environ = {**environ, "HOME": str(tmp_path)}
    run(install, checkout, environ)
    names = run(
        f"{activate}; command -v oplogd oplog-sync oplog-tail oplogctl", checkout, environ
    ).splitlines()
    commands = ("oplogd", "oplog-sync", "oplog-tail", "oplogctl")
    assert names == [str(tmp_path / "oplog-try/bin" / name) for name in commands]
    for name in names:
        assert oplogd.__version__ in run(f"{name} --version", checkout, environ)
    with started(f"{activate}; exec oplogd", checkout, environ) as agent:
        lines_until(agent, "store")
        status = run(f"curl -s http://{environ['OPLOGD_LISTEN']}/status", checkout, environ)
        assert '"status":"OK"' in status.replace(" ", "")
        assert "stopped" in press_ctrl_c(agent)
        assert agent.returncode == 0
    assert (tmp_path / "oplog-try/oplog.db").is_file()


def test_the_package_for_a_cluster_is_built(checkout: Path, environ: dict[str, str]) -> None:
    command = shown(pages.SYNC, "pip wheel").splitlines()[0]
    run(command, checkout, environ)
    assert (checkout / "oplog.zip").is_file()
