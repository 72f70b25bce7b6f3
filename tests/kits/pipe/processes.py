"""Pipes as processes of their own, in a folder with their settings."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oplog_pipe.commands.status import folder_members
from oplog_pipe.config import load
from oplog_pipe.errors import LogError
from oplog_pipe.folder.operate import view
from tests.kits.agents.agent import DEADLINE
from tests.kits.clock.waiting import attempts
from tests.kits.processes import forked
from tests.kits.processes.logged import LoggedProcess


class PipeProcess(LoggedProcess):
    """A pipe that runs."""

    def __init__(self, settings: Path, *flags: str) -> None:
        super().__init__(["-m", "oplog_pipe", "run", "-f", str(settings), *flags])


class PipeFolder:
    """The settings of a pipe, and the commands on them. ``sinks``: as in the file."""

    def __init__(
        self, folder: Path, agents: Sequence[str], sinks: Sequence[Mapping[str, Any]], **others: Any
    ) -> None:
        self.folder = folder
        self.settings = folder / "pipe.yaml"
        self._agents = list(agents)
        self._others = others
        self.write(sinks)

    def write(self, sinks: Sequence[Mapping[str, Any]]) -> None:
        """Write the settings, in YAML's subset JSON."""
        document = {
            "dir": "pipe",
            "offset_flush": "100ms",
            "sources": [{"agents": self._agents}],
            "sinks": list(sinks),
            **self._others,
        }
        self.settings.write_text(json.dumps(document))

    @property
    def log(self) -> Path:
        """The folder of the commit log."""
        return self.folder / "pipe"

    def run(self, *flags: str) -> PipeProcess:
        return PipeProcess(self.settings, *flags)

    def command(self, *arguments: str, code: int = 0) -> str:
        """Run a command, expect its exit code, and return its output; its errors if it failed."""
        ended = forked.run(
            [sys.executable, "-m", "oplog_pipe", *arguments, "-f", str(self.settings)],
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stderr if code else ended.stdout

    def status(self) -> Any:
        """Return the JSON of ``oplog-pipe status`` without a process of its own."""
        settings = load(self.settings)
        return folder_members(settings, view(settings))

    def wait_status(self, is_reached: Callable[[Any], bool], seconds: float = DEADLINE) -> Any:
        """Wait until the status of the folder is as wanted, and return it."""
        for _ in attempts(seconds):
            status: Any = None
            if self.log.exists():  # a pipe that has just started may not have created it
                with suppress(LogError):
                    status = self.status()
                    if is_reached(status):
                        return status
        raise AssertionError(status)
