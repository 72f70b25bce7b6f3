"""A sink for PostgreSQL whose task freezes itself and its executor once, right before a write."""

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.sink import PostgresSink


class FreezingSink(PostgresSink):
    """``folder``: the file ``freeze`` there names an object, the first write with it freezes.

    Then ``frozen`` has the processes, and in the end ``outcome`` has what became of the write.
    """

    def __init__(self, url: str, folder: str) -> None:
        super().__init__(PostgresOptions(url, table="objects", id="{namespace}/{id}"))
        self._folder = Path(folder)

    def write(self, messages: Sequence[Message]) -> None:
        if not self._freezes(messages):
            super().write(messages)
            return
        outcome = "written"
        try:
            super().write(messages)
        except SinkError as error:
            outcome = type(error).__name__
            raise
        finally:
            (self._folder / "outcome").write_text(outcome)

    def _freezes(self, messages: Sequence[Message]) -> bool:
        freeze = self._folder / "freeze"
        try:
            name = freeze.read_text()
        except FileNotFoundError:
            return False
        if name not in [each.id for each in messages]:
            return False
        with suppress(FileNotFoundError):
            freeze.unlink()
            daemon = os.getppid()
            java = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            part = self._folder / "frozen.part"
            part.write_text(json.dumps([java, daemon, os.getpid()]))
            part.rename(self._folder / "frozen")
            for each in (java, daemon, os.getpid()):
                os.kill(each, signal.SIGSTOP)
            return True
        return False
