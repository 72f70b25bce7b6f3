"""A sink that a test controls. It stands beside the settings of the pipe as a module of its own.

``PLAN`` in its folder is read before each write: ``{"fail": [14], "hold": 13}``. A write with an
offset of ``fail`` is refused. A write with the offset ``hold`` or a later one waits until the test
opens the pipe ``NAME.gate``. ``NAME.record`` has a line for each call.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message


class Controlled:
    def __init__(self, folder: str, name: str) -> None:
        self._folder = Path(folder)
        self._name = name

    def open(self) -> None:
        self._note("open", None)

    def write(self, messages: Sequence[Message]) -> None:
        offsets = [message.offset for message in messages]
        plan = self._plan()
        if offsets[-1] >= plan.get("hold", 1 << 62):
            self._note("held", offsets)
            (self._folder / f"{self._name}.gate").read_bytes()
        for index, offset in enumerate(offsets):
            if offset in plan.get("fail", ()):
                self._note("refused", offsets)
                raise SinkError(f"{self._name} refuses {offset}", index=index)
        self._note("write", offsets)

    def begin_copy(self, generation: int, source: str) -> None:
        self._note("begin_copy", source)

    def end_copy(self, generation: int, source: str) -> None:
        self._note("end_copy", source)

    def close(self) -> None:
        self._note("close", None)

    def _plan(self) -> dict[str, Any]:
        path = self._folder / f"{self._name}.plan"
        plan: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return plan

    def _note(self, call: str, argument: object) -> None:
        with (self._folder / f"{self._name}.record").open("a") as file:
            file.write(json.dumps([call, argument]) + "\n")
            file.flush()
            os.fsync(file.fileno())
