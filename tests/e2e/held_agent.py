"""``oplogd`` that stops at a step of a transaction: ``python -m tests.e2e.held_agent FLAGS``.

OPLOG_TEST_HOLD names the file of a ``Hold``. The request that does the step waits there, until the
test kills the process or lets the request go on. The steps on MongoDB are those of ``Timing``. On
SQLite they are ``before begin``, ``after begin``, and so on for ``write``, ``commit``, ``abort``:
right before and after the COMMIT of SQLite.

With OPLOG_TEST_NO_KEEPER nothing looks after transactions and pointers: only requests end them.
"""

import asyncio
import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oplogd.cli import main
from oplogd.clock import SYSTEM
from oplogd.ingest import appends
from oplogd.store.sqlite.file import connection, shared_write
from oplogd.store.sqlite.transactions import (
    steps as transaction_steps,
)
from oplogd.topics.keeper import keep

PERIOD = 0.04


class Steps:
    """Knows where to stop. Writes the name of each step and how often it was done to the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = ""
        self._seen = 0  # awaited steps that were done
        self._done = Counter[str]()

    def number_to_hold(self, name: str) -> str | None:
        """Return the number of the hold that this step reaches."""
        self._done[name] += 1
        print(f"step {name} {self._done[name]}.", file=sys.stderr, flush=True)
        number, awaited, count, _ = self._path.read_text().split(",")
        if number != self._number:
            self._number, self._seen = number, 0
        self._seen += name == awaited
        if name != awaited or self._seen != int(count):
            return None
        print(f"held {number}.", file=sys.stderr, flush=True)
        return number

    def is_held(self, number: str) -> bool:
        return self._path.read_text().rpartition(",")[2] != number

    async def at_step(self, name: str) -> None:
        if (number := self.number_to_hold(name)) is not None:
            while self.is_held(number):
                await asyncio.sleep(PERIOD)

    def in_thread(self, name: str) -> None:
        if (number := self.number_to_hold(name)) is not None:
            while self.is_held(number):
                time.sleep(PERIOD)


def hold_mongo(steps: Steps) -> None:
    """Also write the entries of a commit one by one, so that there are steps between them."""
    from oplogd.store.mongo.link.timing import DEFAULT_TIMING
    from oplogd.store.mongo.transactions import payloads

    payloads.MOST_PAYLOADS = 1
    # The default of a parameter cannot be replaced any more. It is frozen.
    object.__setattr__(DEFAULT_TIMING, "at_step", steps.at_step)
    object.__setattr__(DEFAULT_TIMING, "topics_per_step", 1)


def hold_sqlite(steps: Steps) -> None:
    request = ""

    def noted(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: object) -> object:
            nonlocal request
            request = name
            return step(*arguments)

        return noting

    @contextmanager
    def transaction(db: sqlite3.Connection) -> Iterator[None]:
        with connection.transaction(db):
            yield
            steps.in_thread(f"before {request}")
        steps.in_thread(f"after {request}")

    for module, name in (
        (transaction_steps, "begin"),
        (transaction_steps, "write"),
        (transaction_steps, "commit"),
        (transaction_steps, "abort"),
    ):
        setattr(module, name, noted(name, getattr(module, name)))
    setattr(shared_write, "transaction", transaction)  # noqa: B010


if __name__ == "__main__":
    if "OPLOG_TEST_NO_KEEPER" in os.environ:
        setattr(keep, "__defaults__", (3_600.0, SYSTEM))  # noqa: B010
    if "OPLOG_TEST_HOLD" in os.environ:
        appends.ANSWER_SECONDS = 3_600.0  # no request that is held gets an answer
        to_hold = Steps(Path(os.environ["OPLOG_TEST_HOLD"]))
        if "--mongo-url" in sys.argv:
            hold_mongo(to_hold)
        else:
            hold_sqlite(to_hold)
    main()
