"""The image without a container engine: its file, installation, start and health check."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from oplog_kit.listen import Address
from oplogd.config.command import parse
from oplogd.config.settings import Settings
from tests.kits.agents.agent import DEADLINE
from tests.kits.deploy.files import DEPLOY, manifests, must_pass, pod_spec, program, run
from tests.kits.paths import ROOT

CONTAINERFILE = DEPLOY / "Containerfile"


class Instruction(NamedTuple):
    stage: str
    name: str
    text: str


def instructions() -> Iterator[Instruction]:
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace(
        "\\\n", ""
    )
    stage = ""
    for line in filter(None, text.splitlines()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stage = rest.rpartition(" ")[2]
        yield Instruction(stage, name, rest.strip())


def of(stage: str, name: str) -> list[str]:
    return [each.text for each in instructions() if each.stage == stage and each.name == name]


def copied(stage: str) -> list[tuple[Path, str]]:
    """Return the files that a stage copies from the project, with their targets."""
    return [
        (ROOT / source, arguments[-1])
        for arguments in (text.split() for text in of(stage, "COPY"))
        if not arguments[0].startswith("--from")
        for source in arguments[:-1]
    ]


def test_hadolint_has_no_complaint() -> None:
    must_pass(program("hadolint"), "--no-color", "--failure-threshold", "style", CONTAINERFILE)


def test_hadolint_notices_a_mistake(tmp_path: Path) -> None:
    careless = tmp_path / "Containerfile"
    careless.write_text(CONTAINERFILE.read_text().replace(" --no-cache-dir", ""))
    assert run(program("hadolint"), careless).returncode == 1


def test_the_ignore_file_lets_exactly_the_copied_files_through() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    allowed = {path for line in lines if line.startswith("!") for path in ROOT.glob(line[1:])}
    assert allowed == {
        path
        for stage in ("build", "build-relay", "build-pipe", "build-client", "client")
        for path, _ in copied(stage)
    }
    assert all(path.exists() for path in allowed)


def test_every_image_runs_as_the_same_user_who_is_not_root() -> None:
    users = {stage: of(stage, "USER") for stage in ("agent", "sync", "relay", "pipe", "client")}
    assert set(map(tuple, users.values())) == {("8042:8042",)}
    assert "--uid 8042" in of("base", "RUN")[0]
    for pod in filter(None, map(pod_spec, manifests())):
        assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (
            8042,
            8042,
        )


def test_a_build_without_a_target_gives_the_agent() -> None:
    assert list(instructions())[-1].stage == "agent"
    port = Settings().http_address.port
    assert of("agent", "EXPOSE") == [f"{port}/tcp {port}/udp"]


def test_the_agent_of_the_image_serves_all_interfaces() -> None:
    name, _, value = of("agent", "ENV")[-1].partition("=")
    settings = parse([], {name: value})
    assert settings.listen == Address("", Settings().http_address.port)
    assert settings.udp_address == settings.listen


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an environment made from the copied files and the tests' libraries."""
    folder = tmp_path_factory.mktemp("image")
    for stage in ("build", "build-client"):
        for source, whereto in copied(stage):
            target = folder / "src" / whereto
            if source.is_dir():
                shutil.copytree(
                    source,
                    target,
                    ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"),
                )
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    must_pass(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    must_pass(
        sys.executable, "-m", "pip", "--python", folder / "venv/bin/python", "install", "-q",
        "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
        "--no-compile", "--ignore-installed", "--root-user-action=ignore",
        "./src", "./src/clients/python",
        cwd=folder,
    )  # fmt: skip
    return folder


def test_the_copied_files_are_enough_to_install_and_to_start(image: Path, tmp_path: Path) -> None:
    bin_ = image / "venv/bin"
    (entrypoint,) = (json.loads(text) for text in of("agent", "ENTRYPOINT"))
    environ = {
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    process = subprocess.Popen(
        [str(bin_ / entrypoint[0]), *entrypoint[1:], "--listen", "127.0.0.1:0"],
        cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stderr is not None
            match = re.search(
                r"on http://127\.0\.0\.1:(\d+), UDP \S+, store oplog\.db", process.stderr.readline()
            )
            assert match
            assert _health(bin_, match[1]) == 0
            process.terminate()
            assert process.wait(DEADLINE) == 0
            assert _health(bin_, match[1]) == 1
        finally:
            process.kill()
    assert (tmp_path / "oplog.db").exists()
    origins = (
        "import oplogd, oplog_kit, oplog_pipe, oplog_relay, oplog_sync, oplogc, pyspark_oplog;"
        "print(*(each.__file__ for each in "
        "(oplogd, oplog_kit, oplog_pipe, oplog_relay, oplog_sync, oplogc, pyspark_oplog)))"
    )
    assert must_pass(bin_ / "python", "-I", "-c", origins).stdout.count(str(image)) == 7
    for stage, program_ in (
        ("sync", "oplog-sync"), ("relay", "oplog-relay"), ("pipe", "oplog-pipe"),
        ("client", "oplog-tail"),
    ):  # fmt: skip
        assert of(stage, "ENTRYPOINT") == [f'["{program_}"]']
        assert must_pass(bin_ / program_, "--version").stdout.startswith(program_)
    assert must_pass(bin_ / "oplogctl", "--version").stdout.startswith("oplogctl")


def _health(bin_: Path, port: str) -> int:
    """Return the exit code of the image's health check for an agent on this port."""
    (text,) = of("agent", "HEALTHCHECK")
    python, *arguments = json.loads(text.partition("CMD ")[2])
    assert python == "python"
    assert arguments[-1].count(str(Settings().http_address.port)) == 1
    arguments[-1] = arguments[-1].replace(str(Settings().http_address.port), port)
    return run(bin_ / python, *arguments).returncode
