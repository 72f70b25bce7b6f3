"""Stores for tests: one place for each sort, on SQLite and on the stand-ins of MongoDB."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from oplogd.store.sqlite.file import statements
from tests.kits.agents.agent import Agent
from tests.kits.servers.mongo import RunningMongo, new_database

if TYPE_CHECKING:  # tests on SQLite must not need the driver
    from oplogd.store.mongo.setup.setup import CollectionKind

# A SQLite file, or the URL of a database in MongoDB that holds a log.
StoreLocation = Path | str


class Sort(NamedTuple):
    """A server's fixture and the kind of the log there; both None for SQLite."""

    server: str | None = None
    kind: "CollectionKind | None" = None


# The servers differ in what they can hold: see tests/kits/servers/mongo.py.
SORTS = {
    "sqlite": Sort(),
    "mongo-capped": Sort("ferret", "capped"),
    "mongo-plain-small": Sort("ferret", "plain"),
    "mongo-plain": Sort("java", "plain"),
}


class StorePlace(NamedTuple):
    """The location of a test's store. ``kind`` of the log: on MongoDB only."""

    store: StoreLocation
    kind: "CollectionKind | None" = None

    @property
    def argv(self) -> list[str]:
        """The flags that name the store."""
        if self.kind is None:
            return ["--store", str(self.store)]
        return ["--mongo-url", str(self.store), "--log-collection", self.kind]

    def agent(
        self, folder: Path, *flags: str, make: Callable[..., Agent] = Agent, **options: Any
    ) -> Agent:
        """Return an agent on this store. ``make`` and ``options``: another class, its options."""
        if self.kind is None:
            assert self.store == folder / "oplog.db"
            return make(folder, *flags, **options)
        return make(folder, *self.argv, "--lease", "3s", *flags, **options)

    def create(self) -> "StorePlace":
        """Create an empty log in MongoDB. The first program to open a SQLite file creates it."""

        async def make() -> None:
            from oplogd.store.mongo import MongoStore

            store = MongoStore(str(self.store), collection=self.kind)
            await store.open()
            await store.close()

        if self.kind is not None:
            asyncio.run(make())
        return self


def new_place(request: pytest.FixtureRequest, sort: str) -> StorePlace:
    """Return a place of one of the SORTS that nothing uses yet."""
    server, kind = SORTS[sort]
    if server is None:
        folder: Path = request.getfixturevalue("tmp_path")
        return StorePlace(folder / "oplog.db")
    running: RunningMongo = request.getfixturevalue(server)
    return StorePlace(new_database(running.url), kind)


def skip_fsync(patch: pytest.MonkeyPatch) -> None:
    """Let SQLite not wait for the disk: no test cuts the power."""
    patch.setattr(statements, "PRAGMAS", statements.PRAGMAS.replace("FULL", "OFF"))
