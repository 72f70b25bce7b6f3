"""A process that stops in a commit.

Start it with ``python -m tests.e2e.transactions.commit_process PATH TXN RECORDS POINT``.

``POINT``: the beginning of the SQL statement before which it stops. There it writes ``stopped`` and
waits. If there is no such statement, it writes ``answered`` after the commit and waits.
"""

import asyncio
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

from oplogd.store.sqlite import SqliteStore
from oplogd.store.sqlite.file import statements
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.transactions import steps as transaction_steps
from tests.kits.processes.stopping import stopped

# Changed pages go to the -wal before the commit, as those of a very large one do.
SMALL_CACHE = "PRAGMA cache_size = 20;"


def stop(answer: str) -> None:
    print(answer, flush=True)
    threading.Event().wait()


async def main(path: Path, id_: int, records: int, point: str) -> None:
    commit = transaction_steps.commit

    def traced(step: SharedStep, *arguments: object) -> object:
        step.db.set_trace_callback(
            lambda text: stop("stopped") if text.strip().startswith(point) else None
        )
        return commit(step, *arguments)  # type: ignore[arg-type]

    with (
        mock.patch.object(transaction_steps, "commit", traced),
        mock.patch.object(statements, "PRAGMAS", statements.PRAGMAS + SMALL_CACHE),
    ):
        store = SqliteStore(path)
        await store.open()
        await store.transactions.commit(id_, records)
        stop("answered")


def committing(
    path: Path, id_: int, records: int, point: str
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Run such a process until it has stopped. At the end it is killed."""
    line = b"answered\n" if point == "nothing" else b"stopped\n"
    return stopped("tests.e2e.transactions.commit_process", path, id_, records, point, line=line)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
