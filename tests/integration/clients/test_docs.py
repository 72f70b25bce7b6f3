"""The snippets of the pages and the READMEs of the clients run, also after a restart."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.restart import agent_on
from tests.kits.clients.tokens import Issuer
from tests.kits.documents import pages, strict
from tests.kits.paths import ROOT
from tests.kits.processes import forked
from tests.kits.processes.commands import Commands
from tests.kits.servers.mongo import GO_FLAGS, go_program
from tests.kits.servers.ports import free_port

CLIENTS = ROOT / "clients"
LANGUAGES = ("go", "js", "php", "python")
READMES = [CLIENTS / language / "README.md" for language in LANGUAGES]
# These packages are taken from the checkout by other means.
INSTALLS = ("pip install", "npm install", "composer require", "go mod edit")
MANY = "range(10_000)"


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


class Restarted:
    """An agent that keeps its port and its store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.agent = agent_on(self.port, folder)

    def restart(self) -> None:
        assert self.agent.stop() == 0
        self.agent = agent_on(self.port, self._folder)


@contextmanager
def agent_with_videos(folder: Path) -> Iterator[Restarted]:
    folder.mkdir()
    restarted = Restarted(folder)
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
    ("language", "page"),
    [
        *pages.CLIENT.items(),
        *((language, CLIENTS / language / "README.md") for language in LANGUAGES),
    ],
    ids=lambda each: each.relative_to(ROOT).as_posix() if isinstance(each, Path) else each,
)
def test_the_snippets_of_a_page_run_and_again_after_the_agent_was_restarted(
    tmp_path: Path, language: str, page: Path
) -> None:
    commands = {"oplogctl": "-m oplogc.ctl", "oplog-tail": "-m oplogc.tail"}
    shown = [
        each for each in snippets(page) if not any(install in each.code for install in INSTALLS)
    ]
    assert language in {each.language for each in shown}
    # All other consumers would replicate what this one sends.
    large = [each for each in shown if MANY in each.code]
    closed = [each for each in shown if "token" in each.code and each.language != "sh"]
    with Commands(tmp_path / "bin", commands):
        for name, some in (
            ("few", [each for each in shown if each not in large + closed]),
            ("many", large),
        ):
            if not some:
                continue
            with agent_with_videos(tmp_path / name) as restarted:
                play_all(restarted, tmp_path, some)
                restarted.restart()
                play_all(restarted, tmp_path, some)
        for snippet in closed:
            play_with_token(tmp_path, snippet)


def play_all(restarted: Restarted, folder: Path, shown: list[Snippet]) -> None:
    for snippet in shown:
        mine = folder / f"{snippet.line}"
        mine.mkdir(exist_ok=True)
        if not (mine / "clients").exists():
            (mine / "clients").symlink_to(CLIENTS)
        play(restarted.port, mine, snippet)


def play_with_token(folder: Path, snippet: Snippet) -> None:
    """Run a snippet that reads the file ``token``, with an agent that refuses all without one."""
    mine = folder / f"{snippet.line}"
    mine.mkdir()
    issuer = Issuer(mine)
    (mine / "token").write_text(issuer.token())
    with issuer.agent() as agent:
        play(agent.port, mine, snippet)


def play(port: int, folder: Path, snippet: Snippet) -> None:
    here = snippet._replace(code=snippet.code.replace("localhost:8042", f"127.0.0.1:{port}"))
    path = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run = forked.run if snippet.language == "python" else subprocess.run
    done = run(
        command(here, folder),
        cwd=folder, capture_output=True, text=True, timeout=DEADLINE,
        env={**os.environ, "PATH": path, "GOPROXY": "off", "GOFLAGS": GO_FLAGS},
    )  # fmt: skip
    assert done.returncode == 0, f"{snippet.page}:{snippet.line}\n{done.stdout}{done.stderr}"
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
