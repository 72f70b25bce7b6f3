"""A process that stops before a commit.

Start it with ``python -m tests.e2e.pointers.pointer_process PATH LOG STEP``.

``STEP``: a function of ``pointer_steps`` or ``pointer_ends``, called for pointer 7. The process
writes ``stopped`` before SQLite commits it, and waits.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

from oplogd.model.pointer import Decision
from oplogd.store.sqlite import SqliteStore
from oplogd.store.sqlite.file import statements
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.pointers import ends as pointer_ends
from oplogd.store.sqlite.pointers import steps as pointer_steps
from oplogd.store.transactions import RecordLimits
from tests.e2e.transactions.commit_process import SMALL_CACHE, stop
from tests.kits.store.messages import messages

POINTER = 7
TIMEOUT_MS = 900_000
MESSAGES = 3000


async def main(path: Path, log: int, step: str) -> None:
    module = pointer_ends if step == "decide" else pointer_steps
    original = getattr(module, step)

    def traced(step: SharedStep, *arguments: object, **named: object) -> object:
        step.db.set_trace_callback(lambda text: stop("stopped") if text == "COMMIT" else None)
        return original(step, *arguments, **named)

    with (
        mock.patch.object(module, step, traced),
        mock.patch.object(statements, "PRAGMAS", statements.PRAGMAS + SMALL_CACHE),
    ):
        store = SqliteStore(path)
        await store.open()
        await calls(store, log)[step]()


def calls(store: SqliteStore, log: int) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return the call of each step that is killed."""
    pointers = store.pointers
    given = messages(range(MESSAGES))
    return {
        "publish": lambda: pointers.publish(log, POINTER, given, TIMEOUT_MS),
        "store": lambda: pointers.store(log, POINTER, given, TIMEOUT_MS, RecordLimits()),
        "publish_stored": lambda: pointers.publish_stored(log, POINTER, TIMEOUT_MS),
        "rollback": lambda: pointers.rollback(log, POINTER, None),
        "decide": lambda: pointers.decide([log], POINTER, Decision.COMMITTED),
    }


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
