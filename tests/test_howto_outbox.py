"""A reader pastes everything in docs/howto/outbox.md and sees what the page shows."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.clients.restart import free_port
from tests.conftest import ROOT
from tests.contract.wire import wait_until
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.documents.snippets import Snippet, snippets
from tests.kits.documents.staying import shape
from tests.kits.processes.commands import Commands
from tests.kits.servers.postgres import PostgresServer

PAGE = ROOT / "docs/howto/outbox.md"
# Commands of the page -> arguments of Python: they need not be installed.
COMMANDS = {
    "oplog-relay": "-m oplog_relay",
    "oplogctl": "-m oplogc.ctl",
    "python": "",
    "uvicorn": "-m uvicorn",
}
# They need packages or containers: tests/test_checkout.py and tests/deploy try them.
ELSEWHERE = ("pip install", "docker ")
# Shorter than the defaults, so that the page need not wait for expiry and back-off.
LIMITS = "limits: {heartbeat: 1s, session: 2s, blocked_backoff: [100ms, 100ms]}\n"
_VARYING = re.compile(r"\b\d+ attempts?\b|\b\d{4}-\d\d-\d\d[ T][\d:.]+\+00:00")


class Walk:
    """A reader with an agent, a database and terminals."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        self._folder = folder
        self._postgres = postgres
        self._database = postgres.new_database().rpartition("/")[2]
        self._port = free_port()
        self._staying: list[subprocess.Popen[bytes]] = []
        self._code = ""
        self._printed = ""
        with ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            agent = stack.enter_context(Agent(folder))
            stack.enter_context(Commands(folder / "bin", COMMANDS))
            self._stack = stack.pop_all()
        self._addresses = {
            "localhost:5432/shop": f"127.0.0.1:{postgres.port}/{self._database}",
            "localhost:8042": f"127.0.0.1:{agent.port}",
            "localhost:8000": f"127.0.0.1:{self._port}",
            "--port 8000": f"--port {self._port}",
        }
        self._environ = {
            **os.environ,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "OPLOGCTL_URL": agent.url,
        }

    def paste(self, snippet: Snippet) -> None:
        if "Ctrl-C" in snippet.prose:
            self.press_ctrl_c()
        code = self.here(snippet.code)
        match snippet.language, snippet.word:
            case "sh", "stays":
                if not snippet.first.startswith("oplogd"):
                    self._stay(code)
            case "sh", "":
                if "kill -9" in code:
                    self._wait_empty()  # so that no row comes twice
                self.run(code)
            case "python", "":
                (self._folder / "pasted.py").write_text(code)
                self.run("python -W error pasted.py")
            case "text", "":
                self._compare(code)
            case _, name:
                assert name
                limits = LIMITS if name.endswith(".yaml") else ""
                (self._folder / name).write_text(code + limits)

    def here(self, text: str) -> str:
        for there, address in self._addresses.items():
            text = text.replace(there, address)
        return text

    def run(self, code: str) -> str:
        self._code = code
        done = subprocess.run(
            ["bash", "-euc", code], cwd=self._folder, env=self._environ,
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        self._printed = done.stdout
        assert done.returncode == 0 or self._only_looks(), f"{code}\n{done.stdout}{done.stderr}"
        return done.stdout

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C in all terminals. One process is killed already."""
        for process in self._staying:
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE) in (0, -signal.SIGINT, -signal.SIGKILL), self.errors
        self._staying.clear()
        assert "Traceback" not in self.errors, self.errors

    @property
    def errors(self) -> str:
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode()

    def _only_looks(self) -> bool:
        return re.match("oplogctl|oplog-relay status", self._code) is not None

    def _compare(self, wanted: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while _shape(self._printed) != _shape(wanted):
            if not self._only_looks() or time.monotonic() > deadline:
                raise AssertionError(f"{self._code}\nprints\n{self._printed}\n{self.errors}")
            self.run(self._code)

    def _stay(self, code: str) -> None:
        self._staying.append(
            subprocess.Popen(
                ["bash", "-c", f"exec {code}"], cwd=self._folder, env=self._environ,
                stdout=subprocess.DEVNULL, stderr=self._errors,
                # A shell starts background processes with SIGINT ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        )  # fmt: skip
        if code.startswith("uvicorn"):
            assert wait_until(self._is_served), self.errors

    def _is_served(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
            return True
        return False

    def _wait_empty(self) -> None:
        count = "SELECT count(*) FROM outbox"
        assert wait_until(lambda: self._postgres.run(count, self._database) == [(0,)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._staying:
            process.kill()
            process.wait(DEADLINE)
        self._stack.close()


def _shape(text: str) -> list[str]:
    return shape(_VARYING.sub("<varying>", text))


def test_a_reader_who_pastes_everything_sees_what_is_shown(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with Walk(tmp_path, postgres) as walk:
        for snippet in snippets(PAGE):
            if snippet.language and not snippet.first.startswith(ELSEWHERE):
                walk.paste(snippet)
        walk.press_ctrl_c()
        assert "handed over" in walk.run("oplog-relay status -f relay.yaml")
