"""The test's side of a controlled sink."""

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.pipe import controlled
from tests.kits.agents.agent import DEADLINE


class Control:
    """Controls the sink of a name, whose files are in ``folder``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.name = name
        shutil.copy(Path(controlled.__file__), folder / "controlled.py")
        os.mkfifo(self._gate)

    def settings(self, **others: Any) -> dict[str, Any]:
        """Return the sink's settings."""
        return {
            "name": self.name,
            "type": "controlled:Controlled",
            "options": {"folder": str(self._folder), "name": self.name},
            **others,
        }

    def plan(self, **plan: Any) -> None:
        path = self._folder / f"{self.name}.plan"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(plan))
        new.replace(path)

    def release(self) -> None:
        """Let the held write go on."""
        self._gate.write_bytes(b"")

    def calls(self) -> list[tuple[str, Any]]:
        path = self._folder / f"{self.name}.record"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(call, argument) for call, argument in map(json.loads, lines)]

    def forget(self) -> None:
        """Remove the record of calls."""
        (self._folder / f"{self.name}.record").unlink(missing_ok=True)

    def writes(self) -> list[Sequence[int]]:
        """Return the offsets of each write."""
        return [argument for call, argument in self.calls() if call == "write"]

    def wait(self, is_reached: Callable[[list[tuple[str, Any]]], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not is_reached(calls := self.calls()):
            assert time.monotonic() < deadline, calls
            time.sleep(0.005)

    def wait_written(self, offset: int) -> None:
        self.wait(lambda calls: any(c == "write" and offset in a for c, a in calls))

    def wait_held(self, offset: int) -> None:
        self.wait(lambda calls: any(c == "held" and offset in a for c, a in calls))

    @property
    def _gate(self) -> Path:
        return self._folder / f"{self.name}.gate"
