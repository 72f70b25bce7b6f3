"""Two workers on one SQLite file behind one handle: each call goes to the other store in turn."""

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from oplogd.clock.guard import GuardedClock
from oplogd.store import Store
from oplogd.store.sqlite import SqliteStore
from oplogd.store.transactions import Decisions
from oplogd.workers.workers import Worker, Workers
from tests.kits.store.kits import MakeKits, SqliteKit, file_kits

# Parts of a store with methods of their own.
_PARTS = ("topics", "transactions", "pointers", "leases", "consumers")
# Methods that keep the position of one follower.
_OF_ONE = ("follow", "news")


class Alternating:
    """Stands for stores, or for the same part of each.

    ``clocks``: of the stores. Each worker looks at its clock while the other one works.
    """

    def __init__(self, each: Sequence[Any], clocks: Sequence[GuardedClock]) -> None:
        self._each = each
        self._clocks = clocks
        self._turns = itertools.cycle(each)

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS:
            part = Alternating([getattr(each, name) for each in self._each], self._clocks)
            setattr(self, name, part)
            return part
        found = getattr(self._each[0], name)
        if isinstance(found, Decisions):  # each worker counts its own
            total = Decisions()
            for each in self._each:
                total.include(getattr(each, name))
            return total
        if name in _OF_ONE or not callable(found) or name == "clock":
            return found
        return partial(self._call, name)

    def log(self, topic: Any) -> Any:
        """Return the log of a topic, read by both stores in turn."""
        return Alternating([each.log(topic) for each in self._each], self._clocks)

    def _call(self, name: str, *args: Any, **given: Any) -> Any:
        for clock in self._clocks:
            clock.now_ms()
        return getattr(next(self._turns), name)(*args, **given)


class WorkersKit(SqliteKit):
    """All handles of a kit are the stores of the same two workers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._workers = Workers(2)

    async def open(
        self,
        max_bytes: int | None = None,
        topic_ttl: int | None = None,
        topics_max_bytes: int | None = None,
    ) -> Store:
        stores = [
            SqliteStore(
                self._path,
                max_bytes,
                topic_ttl=topic_ttl,
                clock=self.clock.dates,
                topics_max_bytes=topics_max_bytes,
                place=Worker(self._workers, number).writer_place,
            )
            for number in range(self._workers.count)
        ]
        self._open += stores
        for store in stores:
            await store.open()
        return cast(Store, Alternating(stores, [each.clock for each in stores]))


worker_kits: MakeKits = partial(file_kits, WorkersKit)
