"""A target that mirrors the objects, its query, and a source with a small log."""

import json
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from oplog_sync.source import make_origin
from oplog_sync.source.copies import CopyingOrigin, versioned_batch, versioned_schema
from oplog_sync.source.options import read_options
from oplog_sync.source.stream import StreamReader
from oplogd.model.operation import format_ms
from tests.kits.agents.agent import Agent
from tests.kits.spark.helpers import operation

SMALL_LOG = ("--capped-collection-size", "20KB")
# More operations than the log holds.
MANY = 400
START_MS = 1_700_000_000_000

Offset = dict[str, Any]


class Target:
    """A table without tombstones: nothing is written over a larger version."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, str]] = {}

    def apply(self, row: dict[str, Any]) -> None:
        version = row["version"]
        if row["event"] == "live":
            self.rows = {key: each for key, each in self.rows.items() if each[0] >= version}
        elif row["key"] not in self.rows or self.rows[row["key"]][0] <= version:
            self.rows.pop(row["key"], None)
            if row["event"] != "delete":
                self.rows[row["key"]] = version, row["data"]

    @property
    def objects(self) -> dict[str, str]:
        return {key: json.loads(data)["timestamp"] for key, (_, data) in self.rows.items()}


class Query:
    """Runs batches as Spark does: an offset is noted before its batch, and a batch may be repeated.

    The clock of each driver is behind that of the driver before.
    """

    def __init__(self, **options: str) -> None:
        self._options = read_options({"onGap": "copy", **options}, "stream")
        self.start: Offset | None = None
        self._planned: Offset | None = None
        self.target = Target()
        self.events: list[str] = []
        self.pauses: list[float] = []
        self._ms = START_MS + 1
        self.reader = self._new()

    def restart(self) -> None:
        self.close()
        self.reader = self._new()

    def close(self) -> None:
        self.reader.stop()

    def _new(self) -> StreamReader:
        self._ms -= 1
        self.log = make_origin(self._options)
        origin = CopyingOrigin(self.log, clock=lambda: self._ms, sleep=self.pauses.append)
        to_arrow = partial(versioned_batch, schema=versioned_schema())
        return StreamReader(self._options, origin, to_arrow)

    def batch(self, *, dies: bool = False, chance: random.Random | None = None) -> bool:
        """Run a batch. Return False if there is nothing to read. ``dies``: the driver, in it."""
        reader = self.reader
        start = self.start or reader.initialOffset()
        if self._planned is None:
            end = reader.latestOffset(start)
            if end == start:
                return False
            self._planned = json.loads(json.dumps(end))
        rows = [
            row
            for part in reader.partitions(start, self._planned)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        if chance is not None:
            # Objects come in any order. The rows of one are in the order of their versions, and
            # the row `live` comes last.
            chance.shuffle(rows)
            rows.sort(key=lambda row: row["version"])
            place = {row["key"]: chance.random() for row in rows}
            rows.sort(key=lambda row: (row["event"] == "live", place[row["key"]]))
        if dies and chance is not None:
            rows = rows[: chance.randint(0, len(rows))]
        for row in rows:
            self.target.apply(row)
        self.events += [row["event"] for row in rows]
        if dies:
            self.restart()
        else:
            self.start, self._planned = self._planned, None
        return True

    def settle(self) -> None:
        """Wait until the states hold every operation."""
        self._options.backend().settle()

    def finish(self, chance: random.Random | None = None) -> None:
        while self.batch(chance=chance):
            pass

    def finish_available(self) -> None:
        """Run as a query for the present operations."""
        self.restart()
        self.reader.prepareForTriggerAvailableNow()
        self.finish()


def place_of(folder: Path, agent: Agent, through: str) -> dict[str, str]:
    if through == "store":
        return {"store": str(folder / "oplog.db"), "partitionRows": "40"}
    return {"agent": agent.url}


class World:
    """An agent with a small log, and the objects that it has. ``store``: a file, or a URL."""

    def __init__(self, agent: Agent, store: Path | str, chance: random.Random) -> None:
        self._agent = agent
        self._store = store
        self._chance = chance
        self._ms = 0
        self.objects: dict[str, str] = {}

    def trim(self) -> None:
        """Let the log in MongoDB keep its newest operation only, as trimming does later."""
        with self._database() as database:
            log = database["oplog_ops"]
            (newest,) = log.find({}, {"n": 1}).sort("n", -1).limit(1)
            log.delete_many({"n": {"$lt": newest["n"]}})

    @contextmanager
    def _database(self) -> Iterator[Database[dict[str, Any]]]:
        client: MongoClient[dict[str, Any]] = MongoClient(str(self._store))
        with closing(client):
            yield client.get_default_database()

    def change(self, count: int, names: int = 30) -> None:
        self.send(
            (f"{self._chance.randrange(names)}", self._chance.random() < 0.4) for _ in range(count)
        )

    def send(self, changes: Iterable[tuple[str, bool]]) -> None:
        """``changes``: names, and whether the object is deleted."""
        sent = []
        for name, is_deleted in changes:
            self._ms += 1
            time = format_ms(START_MS + self._ms)
            sent.append(operation("delete" if is_deleted else "update", "a", name, time))
            if is_deleted:
                self.objects.pop(f"a/{name}", None)
            else:
                self.objects[f"a/{name}"] = time
        assert not sent or self._agent.post(sent) == 200

    def use(self, agent: Agent) -> None:
        """Send to another agent."""
        self._agent = agent

    def purge(self) -> None:
        if isinstance(self._store, str):
            with self._database() as database:
                database["oplog_states"].delete_many({"event": "delete"})
            return
        with closing(sqlite3.connect(self._store)) as db, db:
            db.execute("DELETE FROM states WHERE deleted")


@contextmanager
def two_stores(folder: Path, through: str) -> Iterator[tuple[Agent, Callable[[], Agent]]]:
    """Yield an agent, and a function that puts one on another store in its place."""
    path = folder / "oplog.db"
    with ExitStack() as stack:

        def begin(name: str, *flags: str) -> Agent:
            (folder / name).mkdir(exist_ok=True)
            agent = stack.enter_context(Agent(folder / name, *flags))
            path.unlink(missing_ok=True)
            path.symlink_to(folder / name / "oplog.db")
            return agent

        agent = begin("first")

        def replace() -> Agent:
            assert agent.stop() == 0
            return begin("second", "--listen", agent.url.removeprefix("http://"))

        yield agent, replace
