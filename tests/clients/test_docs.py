"""What docs/clients.md shows, run as it stands against an agent, and once more after the agent was restarted."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.agents import DEADLINE
from tests.clients.restart import agent_on, free_port
from tests.conftest import ROOT


class Snippet(NamedTuple):
    line: int
    language: str
    code: str


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Snippet(text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in found]


SNIPPETS = snippets(ROOT / "docs" / "clients.md")


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


def command(snippet: Snippet, folder: Path) -> list[str]:
    if snippet.language == "python":
        return [sys.executable, "-W", "error", "-c", snippet.code]
    if snippet.language == "js":
        module = folder / "node_modules" / "oplog-client"
        module.parent.mkdir(exist_ok=True)
        if not module.exists():
            module.symlink_to(ROOT / "clients" / "js")
        node = shutil.which("node")
        assert node, "node is missing: install the package nodejs (20 or newer)"
        return [node, "--input-type=module", "-e", snippet.code]
    assert snippet.language == "sh"
    return ["bash", "-euc", snippet.code]


@pytest.mark.parametrize(
    "snippet", SNIPPETS, ids=[f"line_{snippet.line}_{snippet.language}" for snippet in SNIPPETS]
)
def test_a_snippet_runs_and_again_after_the_agent_was_restarted(
    restarted: Restarted, tmp_path: Path, snippet: Snippet
) -> None:
    if "pip install" in snippet.code:  # done, or nothing here would run
        assert (ROOT / "clients" / "python" / "pyproject.toml").is_file()
        return
    (tmp_path / "clients").symlink_to(ROOT / "clients")
    run(restarted, tmp_path, snippet)
    restarted.restart()
    run(restarted, tmp_path, snippet)


def run(restarted: Restarted, folder: Path, snippet: Snippet) -> None:
    here = snippet._replace(
        code=snippet.code.replace("localhost:8042", f"127.0.0.1:{restarted.port}")
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command(here, folder),
        cwd=folder, capture_output=True, text=True, timeout=DEADLINE,
        env={**os.environ, "PATH": path, "GOPROXY": "off", "GOFLAGS": "-buildvcs=false"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for trouble in ("Traceback", "Warning", "trying again"):
        assert trouble not in done.stderr
    assert done.stdout or "producer.send" in snippet.code or "TaskGroup" in snippet.code


def test_every_language_is_shown() -> None:
    assert {snippet.language for snippet in SNIPPETS} == {"python", "sh", "js"}
    assert len(SNIPPETS) >= 9
