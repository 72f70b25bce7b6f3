"""What the documents show, taken out of them and run as a reader would.

The word after the language tells how: ``sh stays`` runs until the reader stops it, ``python consumer.py`` is saved under that
name, ``text`` is what the snippet before it prints, ``text stays`` what the last one that stays goes on to print. ``text again``
is printed if the snippet before it is run once more. Where the prose says Ctrl-C, the last one that stays is interrupted. Agents get
free ports; those that the document names stand for them.

A page is read twice in the same folder. In between its agents are restarted at their ports, and every program is ended with Ctrl-C.
"""

import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.agents import DEADLINE, Agent
from tests.clients.restart import free_port
from tests.conftest import ROOT

_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
"""In a list it is indented."""
_PORT = "8042"
_QUIET_ENDS = (0, 128 + signal.SIGINT, -signal.SIGINT)
"""Exit codes after Ctrl-C."""
_VARYING = (
    (re.compile(r"\b[0-9a-f]{24}\b"), "<event id>"),
    (re.compile(r"\b[0-9]{13}\b"), "<milliseconds>"),
    (re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ"), "<time>"),
)


class Snippet(NamedTuple):
    """``word``: what follows the language. ``prose``: the text since the snippet before."""

    line: int
    language: str
    word: str
    code: str
    prose: str

    @property
    def first(self) -> str:
        return next((line.strip() for line in self.code.splitlines() if line.strip()), "")


def documents() -> list[Path]:
    """Every document with something to paste."""
    found = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("clients/*/README.md")]
    return sorted(path for path in found if _FENCE.search(path.read_text(encoding="utf-8")))


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def snippets(document: Path) -> list[Snippet]:
    text = document.read_text(encoding="utf-8")
    found = []
    end = 0
    for match in _FENCE.finditer(text):
        language, _, word = match[2].strip().partition(" ")
        line = text.count("\n", 0, match.start()) + 1
        found.append(
            Snippet(line, language, word, textwrap.dedent(match[3]), text[end : match.start()])
        )
        end = match.end()
    return found


class Staying:
    """A command that runs until it is stopped; what it prints, line by line."""

    def __init__(self, code: str, folder: Path, environ: dict[str, str]) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self.reconnects = not code.startswith("exec curl")
        """Whether it waits for an agent that ended its stream."""
        self._process = subprocess.Popen(
            ["bash", "-c", code], cwd=folder, env=environ, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=self._errors,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def expect(self, text: str) -> None:
        """The next lines are these; heartbeats do not count."""
        wanted = shape(text)
        got: list[str] = []
        while len(got) < len(wanted):
            try:
                line = self._lines.get(timeout=DEADLINE)
            except queue.Empty:
                line = None
            assert line is not None, f"wanted {wanted}, came {got}"
            if line.strip() != ":" and (got or line.strip()):
                got += shape(line, blank=True)
        assert got == wanted, f"wanted {wanted}, came {got}"

    @property
    def errors(self) -> str:
        """Everything on standard error until now."""
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode()

    def press_ctrl_c(self) -> None:
        """End it, as from the keyboard; it must end soon and without a traceback."""
        self._signal(signal.SIGINT)
        code = self.wait()
        assert code in _QUIET_ENDS, f"exit code {code} after Ctrl-C: {self.errors}"
        assert "Traceback" not in self.errors, self.errors

    def wait(self) -> int:
        return self._process.wait(DEADLINE)

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self.wait()
        self._reader.join(DEADLINE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


class Reader:
    """Pastes the snippets of one document, one after another, in a folder.

    ``commands`` run here, by their name, instead of in a process of their own: from their arguments to what they print.
    """

    def __init__(
        self, folder: Path, commands: Mapping[str, Callable[[list[str]], str]] | None = None
    ) -> None:
        self.folder = folder
        self._commands = commands or {}
        self.agents: dict[str, Agent] = {}
        self._flags: dict[str, list[str]] = {}
        self._ports: dict[str, int] = {}
        self._staying: list[Staying] = []
        self._saved: dict[str, str] = {}
        self._printed = ""
        self._last: Snippet | None = None
        self._is_back = False
        python = str(Path(sys.executable).parent)
        self.environ = {
            **os.environ,
            "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "clients/python"))),
        }

    def here(self, code: str) -> str:
        """The code with the agents' real addresses."""

        def address(match: re.Match[str]) -> str:
            agent = self.agents.get(match[2])
            return f"127.0.0.1{match[1]}{agent.port}" if agent else match[0]

        return re.sub(r"\blocalhost([:/])(\d{4})\b", address, code)

    def read_twice(
        self,
        document: Path,
        listed: Container[str] = (),
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Paste all snippets, come back later, and paste all of them again. ``listed``: first lines of snippets to skip."""
        for time_ in ("first", "second"):
            prepare()
            self._read(document, listed, time_)
            self.come_back()

    def _read(self, document: Path, listed: Container[str], time_: str) -> None:
        found = [snippet for snippet in snippets(document) if snippet.first not in listed]
        for number, snippet in enumerate(found):
            if self._is_back and snippet.language == "text" and not snippet.word:
                snippet = next((each for each in found[number:] if each.word == "again"), snippet)
            try:
                self.paste(snippet)
            except AssertionError as error:
                where = f"{name_of(document)}, line {snippet.line}, pasted for the {time_} time"
                raise AssertionError(f"{where}: {error}") from error

    def come_back(self) -> None:
        """Restart the agents, for which programs wait, then end all of them."""
        self._stop_agents()
        waiting = [staying for staying in self._staying if staying.reconnects]
        for staying in self._staying:
            if not staying.reconnects:
                staying.wait()
        if waiting:
            for port in list(self.agents):
                self._start(port)
            deadline = time.monotonic() + DEADLINE
            while self._connections() < len(waiting):
                assert time.monotonic() < deadline, (
                    "a program does not come back to its restarted agent"
                )
                time.sleep(0.01)
            for staying in waiting:
                staying.press_ctrl_c()
            self._stop_agents()
        for staying in self._staying:
            staying.close()
        self._staying.clear()
        self.agents.clear()
        self._is_back = True

    def paste(self, snippet: Snippet) -> None:
        if "Ctrl-C" in snippet.prose:
            self._wait_for_positions()
            self._staying[-1].press_ctrl_c()
            self._staying.pop().close()
        match snippet.language, snippet.word:
            case "text", "stays":
                self._staying[-1].expect(snippet.code)
            case "text", "again":
                assert self._last is not None
                self._execute(self._last)
                self._compare(snippet)
            case "text", "":
                self._compare(snippet)
            case "sh", "stays":
                self._stay(snippet)
            case (("sh" | "python"), ""):
                self._execute(snippet)
            case _, name:
                assert name, f"line {snippet.line}: nobody knows how to run {snippet.language!r}"
                self.save(name, snippet.code)

    def _execute(self, snippet: Snippet) -> None:
        self._last = snippet
        if snippet.language == "python":
            self._printed = self.run([sys.executable, "-W", "error", "-c", self.here(snippet.code)])
        elif command := self._commands.get(snippet.code.split()[0]):
            self._printed = command(shlex.split(snippet.code)[1:])
        else:
            self._printed = self.run(["bash", "-euc", self.here(snippet.code)])

    def save(self, name: str, code: str) -> None:
        """Under its name, with the addresses of the agents that run now or are started later."""
        self._saved[name] = code
        (self.folder / name).write_text(self.here(code), encoding="utf-8")

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=4 * DEADLINE, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _stay(self, snippet: Snippet) -> None:
        command = snippet.code.strip()
        self._printed, self._last = "", None
        if command.split()[0] == "oplogd":
            self.start_agent(shlex.split(command)[1:])
            return
        before = self._connections()
        self._staying.append(Staying(f"exec {self.here(command)}", self.folder, self.environ))
        deadline = time.monotonic() + DEADLINE
        while self._connections() == before:
            assert time.monotonic() < deadline, f"{command} does not follow"
            time.sleep(0.01)

    def _wait_for_positions(self) -> None:
        """A reader is slower than a consumer that writes down, once a second, that it has dealt with `live`."""
        deadline = time.monotonic() + DEADLINE
        while not all(
            re.fullmatch("[0-9a-f]{24}", path.read_text()) for path in self.folder.glob("*.state")
        ):
            assert time.monotonic() < deadline, "no position was saved"
            time.sleep(0.01)

    def start_agent(self, flags: list[str]) -> None:
        """``flags``: those after ``oplogd``; a port that they name stands for the real one."""
        port = _PORT
        if "--listen" in flags:
            at = flags.index("--listen")
            port = flags[at + 1].rpartition(":")[2]
            del flags[at : at + 2]
        self._flags[port] = flags
        self._start(port)
        for name, code in self._saved.items():
            self.save(name, code)

    def _start(self, port: str) -> None:
        real = self._ports.setdefault(port, free_port())
        flags = ["--listen", f"127.0.0.1:{real}", *self._flags[port]]
        environ = {"PYTHONPATH": self.environ["PYTHONPATH"]}
        self.agents[port] = Agent(self.folder, *flags, environ=environ, cwd=self.folder)

    def _stop_agents(self) -> None:
        for agent in self.agents.values():
            code = agent.stop()
            assert code == 0, f"exit code {code} after SIGTERM:\n" + "".join(agent.log)

    def _connections(self) -> int:
        return sum(agent.status()["connections"] for agent in self.agents.values())

    def _compare(self, snippet: Snippet) -> None:
        if self._last is None:
            self._staying[-1].expect(snippet.code)
            return
        # What a consumer does with the operation just sent takes a moment: a reader would look again.
        deadline = time.monotonic() + DEADLINE
        again = self._last.code.split()[0] not in self._commands
        while again and shape(self._printed) != shape(snippet.code) and time.monotonic() < deadline:
            self._printed = self.run(["bash", "-euc", self.here(self._last.code)])
        assert shape(self._printed) == shape(snippet.code), f"it prints\n{self._printed}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for staying in self._staying:
            staying.close()
        for agent in self.agents.values():
            agent.kill()


def shape(text: str, blank: bool = False) -> list[str]:
    """Lines without what differs from run to run; empty ones at the ends count only with ``blank``."""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    lines = [line.rstrip() for line in text.splitlines()]
    if not blank:
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
    return lines
