"""The snippets of the pages and the READMEs of the clients run, also after a restart."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.restart import agent_on
from tests.kits.documents import pages, strict
from tests.kits.paths import ROOT
from tests.kits.processes import forked
from tests.kits.processes.commands import Commands
from tests.kits.servers.mongo import GO_FLAGS, go_program
from tests.kits.servers.ports import free_port

CLIENTS = ROOT / "clients"
LANGUAGES = ("go", "js", "php", "python")
PAGES = list(pages.CLIENT.values())
READMES = [CLIENTS / language / "README.md" for language in LANGUAGES]
# These packages are taken from the checkout by other means.
INSTALLS = ("pip install", "npm install", "composer require", "go mod edit")


class Snippet(NamedTuple):
    page: str
    line: int
    language: str
    code: str


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [
        Snippet(name, text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in found
    ]


SNIPPETS = [snippet for page in (*PAGES, *READMES) for snippet in snippets(page)]


class Restarted:
    """An agent that keeps its port and its store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.agent = agent_on(self.port, folder)

    def restart(self) -> None:
        assert self.agent.stop() == 0
        self.agent = agent_on(self.port, self._folder)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    restarted = Restarted(tmp_path_factory.mktemp("agent"))
    try:
        restarted.agent.post(
            [{"event": "insert", "type": "video", "id": str(number)} for number in range(100)]
        )
        yield restarted
    finally:
        restarted.agent.kill()


def found(program: str) -> str:
    path = shutil.which(program)
    assert path, f"{program} is missing: see tests/setup"
    return path


def command(snippet: Snippet, folder: Path) -> list[str]:
    """Install the client in the project, and return the command of the snippet."""
    match snippet.language:
        case "python":
            (folder / "snippet.py").write_text(snippet.code)
            return [sys.executable, strict.__file__, "snippet.py"]
        case "js":
            module = folder / "node_modules" / "oplog-client"
            module.parent.mkdir(exist_ok=True)
            if not module.exists():
                module.symlink_to(CLIENTS / "js")
            return [found("node"), "--input-type=module", "-e", snippet.code]
        case "php":
            autoload = folder / "vendor" / "autoload.php"
            autoload.parent.mkdir(exist_ok=True)
            autoload.write_text(f"<?php require '{CLIENTS / 'php' / 'src' / 'autoload.php'}';")
            (folder / "snippet.php").write_text(snippet.code)
            return [found("php"), "snippet.php"]
        case "go":
            (folder / "main.go").write_text(snippet.code)
            (folder / "go.mod").write_text(
                "module snippet\n\ngo 1.23\n\nrequire oplog.example/oplog v0.0.0\n\n"
                f"replace oplog.example/oplog => {CLIENTS / 'go'}\n"
            )
            program = folder / "snippet"
            if not program.exists():
                build = [go_program(), "build", "-o", str(program), "."]
                subprocess.run(
                    build,
                    cwd=folder,
                    env={**os.environ, "GOPROXY": "off", "GOFLAGS": GO_FLAGS},
                    check=True,
                )
            return [str(program)]
    assert snippet.language == "sh"
    return ["bash", "-euc", snippet.code]


@pytest.mark.parametrize(
    "snippet", SNIPPETS, ids=[f"{each.page}_{each.line}_{each.language}" for each in SNIPPETS]
)
def test_a_snippet_runs_and_again_after_the_agent_was_restarted(
    restarted: Restarted, tmp_path: Path, snippet: Snippet
) -> None:
    if any(install in snippet.code for install in INSTALLS):
        return
    (tmp_path / "clients").symlink_to(CLIENTS)
    commands = {"oplogctl": "-m oplogc.ctl", "oplog-tail": "-m oplogc.tail"}
    with Commands(tmp_path / "bin", commands):
        play(restarted, tmp_path, snippet)
        restarted.restart()
        play(restarted, tmp_path, snippet)


def play(restarted: Restarted, folder: Path, snippet: Snippet) -> None:
    here = snippet._replace(
        code=snippet.code.replace("localhost:8042", f"127.0.0.1:{restarted.port}")
    )
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run = forked.run if snippet.language == "python" else subprocess.run
    done = run(
        command(here, folder),
        cwd=folder, capture_output=True, text=True, timeout=DEADLINE,
        env={**os.environ, "PATH": path, "GOPROXY": "off", "GOFLAGS": GO_FLAGS},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for trouble in ("Traceback", "Warning", "trying again"):
        assert trouble not in done.stderr
    assert done.stdout or "roducer" in snippet.code or "TaskGroup" in snippet.code


def test_every_language_is_shown() -> None:
    for language, page in pages.CLIENT.items():
        shown = {snippet.language for snippet in snippets(page)}
        assert language in shown
        assert shown <= {language, "sh"}


@pytest.mark.parametrize("readme", READMES, ids=lambda readme: readme.parent.name)
def test_a_readme_shows_how_to_send_and_how_to_follow(readme: Path) -> None:
    code = "".join(each.code for each in snippets(readme) if each.language == readme.parent.name)
    assert "roducer" in code
    assert "onsumer" in code
    page = pages.CLIENT[readme.parent.name].relative_to(ROOT).as_posix()
    assert f"](../../{page})" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_client_has_the_licence(language: str) -> None:
    text = (CLIENTS / language / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("MIT License\n\nCopyright (c) 2026 the oplog authors\n")
    assert text == (CLIENTS / "python" / "LICENSE").read_text(encoding="utf-8")
