"""A reader of a document, with a terminal: pastes its snippets and compares their output.

Agents get free ports, which replace the ports in the document. If the prose says Ctrl-C, the last
command that stays is interrupted. A page is read twice in the same folder. In between, its agents
restart at their ports, and Ctrl-C ends every program.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.documents import strict
from tests.kits.documents.snippets import Snippet, name_of, snippets
from tests.kits.documents.staying import Staying, shape
from tests.kits.processes import forked
from tests.kits.servers.ports import free_port

_PORT = "8042"


class Reader:
    """Pastes the snippets of one document, one after another, in a folder.

    ``path`` has the programs of the document. ``commands`` by name run in this process: a function
    of their arguments returns their output.
    """

    def __init__(
        self,
        folder: Path,
        commands: Mapping[str, Callable[[list[str]], str]] | None = None,
        path: Path = Path(sys.executable).parent,
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
        self.environ = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}

    def here(self, code: str) -> str:
        """Return the code with the real addresses of the agents."""

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
        """Paste all snippets, restart the agents, and paste all of them again.

        ``listed`` has the first lines of snippets to leave out.
        """
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
        """Restart the agents, wait until all programs are connected again, then end all of them."""
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
                assert time.monotonic() < deadline, "a program did not connect again"
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
                assert name, f"line {snippet.line}: no rule to run {snippet.language!r}"
                self.save(name, snippet.code)

    def _execute(self, snippet: Snippet) -> None:
        self._last = snippet
        if snippet.language == "python":
            (self.folder / ".pasted.py").write_text(self.here(snippet.code))
            self._printed = self.run([sys.executable, strict.__file__, ".pasted.py"])
        elif command := self._commands.get(snippet.code.split()[0]):
            self._printed = command(shlex.split(snippet.code)[1:])
        else:
            self._printed = self.run(["bash", "-euc", self.here(snippet.code)])

    def save(self, name: str, code: str) -> None:
        """Write it to a file of this name, with the addresses of the agents."""
        self._saved[name] = code
        (self.folder / name).write_text(self.here(code), encoding="utf-8")

    def run(self, command: list[str]) -> str:
        run = forked.run if command[0] == sys.executable else subprocess.run
        done = run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True,
            timeout=4 * DEADLINE, check=False,
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
        # A program that connects again must not count as this one.
        while (count := self._connections()) == before or count < len(self._staying):
            assert time.monotonic() < deadline, f"{command} does not follow"
            time.sleep(0.01)
        listed = all("consumers" in agent.status() for agent in self.agents.values())
        if command.startswith("curl ") and listed:  # a relay connects and disconnects meanwhile
            while self._staying[-1].ports().isdisjoint(self._consumers()):
                assert time.monotonic() < deadline, f"{command} does not follow"
                time.sleep(0.01)

    def _wait_for_positions(self) -> None:
        """Wait until every state file has an event id: consumers save once a second."""
        deadline = time.monotonic() + DEADLINE
        while not all(
            re.fullmatch("[0-9a-f]{24}", path.read_text()) for path in self.folder.glob("*.state")
        ):
            assert time.monotonic() < deadline, "no position was saved"
            time.sleep(0.01)

    def start_agent(self, flags: list[str]) -> None:
        """Start an agent with these flags. A port in them is replaced by a free one."""
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
        self.agents[port] = Agent(self.folder, *flags, cwd=self.folder)

    def _stop_agents(self) -> None:
        for agent in self.agents.values():
            code = agent.stop()
            assert code == 0, f"exit code {code} after SIGTERM:\n" + "".join(agent.log)

    def _connections(self) -> int:
        return sum(agent.status()["connections"] for agent in self.agents.values())

    def _consumers(self) -> set[int]:
        """Return the ports from which consumers follow."""
        found = [agent.status()["consumers"] for agent in self.agents.values()]
        return {int(each["address"].rpartition(":")[2]) for some in found for each in some}

    def _compare(self, snippet: Snippet) -> None:
        if self._last is None:
            self._staying[-1].expect(snippet.code)
            return
        # A consumer needs a moment for the last operation: run the command again until it is done.
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
