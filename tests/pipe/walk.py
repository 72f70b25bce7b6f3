"""A reader of a how-to about the pipe, with an agent and terminals: pastes its snippets.

If the prose before a snippet says Ctrl-C, the pipe that runs is interrupted; if it says exit code
4, the pipe must end so by itself.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.clients.restart import free_port
from tests.contract.wire import wait_until
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.documents.snippets import Snippet, snippets
from tests.kits.documents.staying import Staying, shape
from tests.kits.processes.commands import Commands

# Commands of the pages -> arguments of Python: they need not be installed.
COMMANDS = {"oplog-pipe": "-m oplog_pipe", "python": "", "uvicorn": "-m uvicorn"}
# They need packages or containers: tests/test_checkout.py and tests/deploy try them.
ELSEWHERE = ("pip install", "docker ")
# Commands that change nothing: they are repeated until the output is there.
LOOKS = re.compile(r"curl -s '|psql -At|python search|oplog-pipe (status|log|offset (list|show)) ")


class Walk:
    """``addresses``: what the page has -> what it is here, besides the agent and port 8000."""

    def __init__(self, folder: Path, addresses: Mapping[str, str]) -> None:
        self._folder = folder
        self._port = free_port()
        self._addresses = {
            **addresses,
            "localhost:8000": f"127.0.0.1:{self._port}",
            "--port 8000": f"--port {self._port}",
        }
        self._pipe: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []
        # The last command that stays and prints.
        self._consumer: Staying | None = None
        self._code = ""
        self._printed = ""
        with ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            stack.enter_context(Commands(folder / "bin", COMMANDS))
            self._stack = stack.pop_all()
        self._environ = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

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
        code = self._here(snippet.code)
        match snippet.language, snippet.word:
            case "sh", "stays":
                self._stay(code.strip())
            case "sh", "":
                self.run(code)
            case "text", "" if self._consumer is not None:
                self._consumer.expect(code)
            case "text", "":
                self._compare(code)
            case _, name:
                assert name, f"no rule to run {snippet.language!r}"
                (self._folder / name).write_text(code)

    def _here(self, text: str) -> str:
        for there, address in self._addresses.items():
            text = text.replace(there, address)
        return text

    def run(self, code: str) -> str:
        """Run a command in the folder of the reader, and return its output."""
        self._code = code
        done = subprocess.run(
            ["bash", "-euc", code], cwd=self._folder, env=self._environ,
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        self._printed = done.stdout
        # What is looked at may not be there yet.
        is_there = done.returncode == 0 or re.match("curl|psql|python search", code)
        assert is_there, f"{code}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _compare(self, wanted: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while shape(self._printed) != shape(wanted):
            if not LOOKS.match(self._code) or time.monotonic() > deadline:
                raise AssertionError(f"{self._code}\nprints\n{self._printed}\n{self.errors}")
            self.run(self._code)

    def _stay(self, code: str) -> None:
        program, *arguments = shlex.split(code)
        if program == "oplogd":
            agent = self._stack.enter_context(Agent(self._folder, *arguments))
            self._addresses["localhost:8042"] = f"127.0.0.1:{agent.port}"
            for path in self._folder.glob("*.*"):  # files that name the agent were saved before
                if path.suffix in (".py", ".yaml"):
                    path.write_text(self._here(path.read_text()))
            return
        if program == "python":
            consumer = Staying(f"exec {code}", self._folder, self._environ)
            self._stack.callback(consumer.close)
            self._consumer = consumer
            return
        process = subprocess.Popen(
            ["bash", "-c", f"exec {code}"], cwd=self._folder, env=self._environ,
            stdout=subprocess.DEVNULL, stderr=self._errors,
            # A shell starts background processes with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        if program == "oplog-pipe":
            assert self._pipe is None, "the pipe runs already"
            self._pipe = process
        else:
            self._others.append(process)
        if program == "uvicorn":
            assert wait_until(self._is_served), self.errors

    def end(self, code: int, number: signal.Signals | None = None) -> None:
        """Wait until the pipe has ended with this exit code, after a signal."""
        assert self._pipe is not None, "no pipe runs"
        if number is not None:
            self._pipe.send_signal(number)
        assert self._pipe.wait(DEADLINE) == code, self.errors
        self._pipe = None
        assert "Traceback" not in self.errors, self.errors

    @property
    def errors(self) -> str:
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode()

    def _is_served(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (*self._others, *([self._pipe] if self._pipe else [])):
            process.kill()
            process.wait(DEADLINE)
        self._stack.close()
