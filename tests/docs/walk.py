"""A reader of a how-to about the pipe, with an agent and terminals: pastes its snippets.

If the prose before a snippet says Ctrl-C, the pipe that runs is interrupted; if it says exit code
4, the pipe must end so by itself.
"""

import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.documents import walk
from tests.kits.documents.snippets import Snippet, snippets
from tests.kits.documents.staying import Staying

# They need packages or containers: tests/deploy/test_checkout.py and tests/deploy try them.
ELSEWHERE = ("pip install", "docker ")


class Walk(walk.Walk):
    """``addresses``: what the page has -> what it is here, besides the agent and port 8000."""

    commands = {"oplog-pipe": "-m oplog_pipe", "python": "", "uvicorn": "-m uvicorn"}  # noqa: RUF012
    looks = re.compile(
        r"curl -s '|psql -At|python search|oplog-pipe (status|log|offset (list|show)) "
    )
    may_fail = re.compile("curl|psql|python search")

    def __init__(self, folder: Path, addresses: Mapping[str, str]) -> None:
        super().__init__(folder, addresses)
        self._pipe: subprocess.Popen[bytes] | None = None
        # The last command that stays and prints.
        self._consumer: Staying | None = None

    def read(self, page: Path) -> None:
        """Paste all snippets of a page."""
        for snippet in snippets(page):
            if snippet.language and not snippet.first.startswith(ELSEWHERE):
                try:
                    self._paste(snippet)
                except AssertionError as error:
                    raise AssertionError(f"{page.name}, line {snippet.line}: {error}") from error

    def _paste(self, snippet: Snippet) -> None:
        if "Ctrl-C" in snippet.prose:
            self.end(0, signal.SIGINT)
        if "exit code 4" in snippet.prose:
            self.end(4)
        code = self.here(snippet.code)
        match snippet.language, snippet.word:
            case "sh", "stays":
                self._begin(code.strip())
            case "sh", "":
                self.run(code)
            case "text", "" if self._consumer is not None:
                self._consumer.expect(code)
            case "text", "":
                self.compare(code)
            case _, name:
                assert name, f"no rule to run {snippet.language!r}"
                (self.folder / name).write_text(code)

    def _begin(self, code: str) -> None:
        program, *arguments = shlex.split(code)
        if program == "oplogd":
            agent = self.stack.enter_context(Agent(self.folder, *arguments))
            self.addresses["localhost:8042"] = f"127.0.0.1:{agent.port}"
            for path in self.folder.glob("*.*"):  # files that name the agent were saved before
                if path.suffix in (".py", ".yaml"):
                    path.write_text(self.here(path.read_text()))
        elif program == "python":
            self._consumer = Staying(f"exec {code}", self.folder, self.environ)
            self.stack.callback(self._consumer.close)
        elif program == "oplog-pipe":
            assert self._pipe is None, "the pipe runs already"
            self._pipe = self.stay(code)
        else:
            self.stay(code)

    def end(self, code: int, number: signal.Signals | None = None) -> None:
        """Wait until the pipe has ended with this exit code, after a signal."""
        assert self._pipe is not None, "no pipe runs"
        if number is not None:
            self._pipe.send_signal(number)
        assert self._pipe.wait(DEADLINE) == code, self.errors
        self._pipe = None
        assert "Traceback" not in self.errors, self.errors
