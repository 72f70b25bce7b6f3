"""Pipes on Spark in the process of the tests, and what their tables have."""

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from oplog_pipe.config import load
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.model.status import SinkStatus
from oplog_pipe.spark.job import SparkPipe
from oplog_pipe.spark.query import QueryOptions, SinkQuery
from tests.kits.agents.agent import DEADLINE
from tests.kits.clock.waiting import attempts

_numbers = itertools.count(1)
Rows = list[tuple[Any, ...]]


class SparkFolder:
    """The settings of a pipe and its checkpoint. ``sinks``: as in the file."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        agents: Sequence[str],
        sinks: Sequence[Mapping[str, Any]],
        **others: Any,
    ) -> None:
        self._spark = spark
        self.folder = folder
        self.settings = folder / "pipe.yaml"
        self.checkpoint = folder / "checkpoint"
        self.pauses: list[float] = []
        # All tests share some servers.
        self.name = others.pop("name", f"p-{os.getpid()}-{next(_numbers)}")
        document = {
            "name": self.name,
            "dir": "pipe",
            "sources": [{"agents": list(agents)}],
            **others,
        }
        self.settings.write_text(json.dumps({**document, "sinks": list(sinks)}))

    def made(self, *, available_now: bool) -> SparkPipe:
        settings = load(self.settings)
        options = QueryOptions(str(self.checkpoint), 2, 200, available_now)
        clock = RetryClock(pause=self._pause)
        queries = [
            SinkQuery(self._spark, settings, number, options, clock=clock)
            for number in range(len(settings.sinks))
        ]
        return SparkPipe(settings, queries)

    @property
    def error(self) -> str:
        """Of the first sink, in the last run."""
        return self.last.status().sinks[0].error or ""

    def _pause(self, leaving: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        return leaving.wait(min(seconds, 0.02))

    def run(self) -> int:
        """Write all that there is now. Return the exit code."""
        self.last = self.made(available_now=True)
        return asyncio.run(self.last.run(asyncio.Event()))

    @contextmanager
    def running(self) -> Iterator["RunningPipe"]:
        found = RunningPipe(self.made(available_now=False))
        try:
            yield found
        finally:
            found.stop()


class RunningPipe:
    """A pipe that follows its sources, in a thread."""

    def __init__(self, pipe: SparkPipe) -> None:
        self.code: int | None = None
        self._pipe = pipe
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self, is_reached: Callable[[SinkStatus], bool]) -> SinkStatus:
        """Wait until the status of the first sink is as wanted."""
        for _ in attempts(2 * DEADLINE):
            found = self._pipe.status().sinks[0]
            if is_reached(found):
                return found
        raise AssertionError(f"it is not reached: {found}")

    def stop(self) -> None:
        with suppress(RuntimeError):  # the pipe has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        self.code = self._loop.run_until_complete(self._pipe.run(self._stop))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def table(url: str, name: str, columns: str = "id, source, timestamp, data") -> Rows:
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT {columns} FROM {name} ORDER BY id".encode()).fetchall()


def postgres_sink(url: str, name: str = "objects", **others: Any) -> dict[str, Any]:
    place = {"table": name, "id": "{namespace}/{id}"}
    return {"name": name, "type": "postgres", "url": url, **place, **others}


def operation(event: str, id: int, parents: list[str] | None = None, type: str = "a") -> Any:
    return {"event": event, "type": type, "id": str(id), "parents": parents or []}
