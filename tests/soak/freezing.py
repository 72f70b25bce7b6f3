"""A sink for PostgreSQL whose task freezes its executor once, and waits right before a write.

Linux wakes a stopped process up when its parent has been killed. So the task itself only waits.
"""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.sink import PostgresSink


class FreezingSink(PostgresSink):
    """``folder``: the file ``freeze`` there names an object, the first write with it freezes.

    Then there is a file ``frozen``. The write goes on when there is a file ``thaw``, and leaves
    what became of it in ``outcome``.
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
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.setsid()  # the daemon ends the group of its workers
            for each in (java, daemon):
                os.kill(each, signal.SIGSTOP)
            (self._folder / "frozen").touch()
            while not (self._folder / "thaw").exists():
                time.sleep(0.1)
            return True
        return False
