"""``oplogd`` with a moved clock whose writes hang while a file exists.

``python -m tests.e2e.oplog.hanging_agent FLAGS``; OPLOG_TEST_HANG names the file. SQLite only.
"""

import os
import runpy
import time
from pathlib import Path
from typing import Any

from oplogd.store.sqlite.file.pool import ConnectionPool

PERIOD = 0.04


def hang_while_it_exists(path: Path) -> None:
    work = ConnectionPool._run

    def hanging(pool: ConnectionPool, *given: Any, **named: Any) -> Any:
        while pool._writes and path.exists():
            time.sleep(PERIOD)
        return work(pool, *given, **named)

    setattr(ConnectionPool, "_run", hanging)  # noqa: B010


if __name__ == "__main__":
    hang_while_it_exists(Path(os.environ["OPLOG_TEST_HANG"]))
    runpy.run_module("tests.kits.clock.agent", run_name="__main__")
