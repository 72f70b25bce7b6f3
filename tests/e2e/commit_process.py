"""A process that stops in a commit: ``python -m tests.e2e.commit_process PATH TXN RECORDS POINT``.

``POINT``: the beginning of the SQL statement before which it stops. There it writes ``stopped`` and
waits. If there is no such statement, it writes ``answered`` after the commit and waits.
"""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from oplogd.store.sqlite import SqliteStore, statements, transaction_commit
from tests.kits.processes.forked import start

ROOT = Path(__file__).resolve().parent.parent.parent

# Changed pages go to the -wal before the commit, as those of a very large one do.
SMALL_CACHE = "PRAGMA cache_size = 20;"


def stop(answer: str) -> None:
    print(answer, flush=True)
    threading.Event().wait()


async def main(path: Path, id_: int, records: int, point: str) -> None:
    commit = transaction_commit.commit

    def traced(db: sqlite3.Connection, *arguments: object) -> object:
        db.set_trace_callback(
            lambda text: stop("stopped") if text.strip().startswith(point) else None
        )
        return commit(db, *arguments)  # type: ignore[arg-type]

    with (
        mock.patch.object(transaction_commit, "commit", traced),
        mock.patch.object(statements, "PRAGMAS", statements.PRAGMAS + SMALL_CACHE),
    ):
        store = SqliteStore(path)
        await store.open()
        await store.transactions.commit(id_, records)
        stop("answered")


@contextmanager
def committing(
    path: Path, id_: int, records: int, point: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run such a process until it has stopped. At the end it is killed."""
    command = [
        *(sys.executable, "-m", "tests.e2e.commit_process"),
        *(str(path), str(id_), str(records), point),
    ]
    with start(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            wanted = b"answered\n" if point == "nothing" else b"stopped\n"
            assert process.stdout.readline() == wanted
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
