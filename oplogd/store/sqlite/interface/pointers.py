"""The pointers of foreign transactions in the embedded store: see ``Pointers``."""

import sqlite3
from collections.abc import Callable, Sequence

from oplogd.clock.ages import Present
from oplogd.clock.guard import GuardedClock
from oplogd.errors import TopicFullError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.pointer import Decision
from oplogd.store.pointers import FoundPointer, Marks, OpenPointer, PointerKey, TimedOutPointer
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.connection import Pools
from oplogd.store.sqlite.file.shared_write import SharedWrite
from oplogd.store.sqlite.pointers import ends, rows, steps
from oplogd.store.sqlite.pointers import statements as sql
from oplogd.store.sqlite.upkeep import room
from oplogd.store.transactions import Decisions, OpenStats, RecordLimits


class SqlitePointers:
    """Uses the pools of its store. Each call is one transaction of SQLite.

    ``wake``: called in the writer's thread after a step; it may have appended to any logs.
    """

    def __init__(self, pools: Pools, wake: Callable[[], None], clock: GuardedClock) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms
        self._shared = SharedWrite(pools.writer, wake, Decisions)
        _, self._readers, self._lookups = pools

    @property
    def decisions(self) -> Decisions:
        return self._shared.decisions

    async def publish(
        self, log: int, pointer: int, messages: Sequence[Message], timeout_ms: int
    ) -> Marks:
        def step(db: sqlite3.Connection, _: Decisions) -> Marks:
            present = self._clock.present()
            _require_room(db, log, pointer, messages, present)
            return steps.publish(db, log, pointer, messages, timeout_ms, present)

        return await self._shared.run(step)

    async def store(
        self,
        log: int,
        pointer: int,
        messages: Sequence[Message],
        timeout_ms: int,
        limits: RecordLimits,
    ) -> None:
        def step(db: sqlite3.Connection, _: Decisions) -> None:
            present = self._clock.present()
            _require_room(db, log, pointer, messages, present)
            steps.store(db, log, pointer, messages, timeout_ms, limits, present)

        await self._shared.run(step)

    async def publish_stored(self, log: int, pointer: int, timeout_ms: int) -> Mark | None:
        return await self._shared.run(
            lambda db, _: steps.publish_stored(db, log, pointer, timeout_ms, self._clock.present())
        )

    async def rollback(
        self, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool = False
    ) -> Mark | None:
        return await self._shared.run(
            lambda db, decisions: steps.rollback(
                db, log, pointer, stamps, self._now_ms(), decisions, force=force
            )
        )

    async def decide(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        return await self._shared.run(
            lambda db, decisions: ends.decide(
                db, logs, pointer, decision, self._clock.present(), decisions
            )
        )

    async def select(
        self, log: int, limit: int, after: PointerKey | None = None
    ) -> list[OpenPointer]:
        return await self._readers.run(lambda db: rows.select(db, log, limit, after))

    async def select_all(self, limit: int, after: PointerKey | None = None) -> list[FoundPointer]:
        return await self._readers.run(lambda db: rows.select_all(db, limit, after))

    async def timed_out(self, log: int, limit: int) -> list[TimedOutPointer]:
        return await self._readers.run(lambda db: rows.timed_out(db, log, limit))

    async def keep(self) -> int:
        """Do ``Pointers.keep``: each step is a transaction of its own. No rollback is ever cut."""
        present = self._clock.present()
        given = age_statements.ends(present) | {"ahead": present.known_to, "limit": 1}
        if not await self._lookups.run(lambda db: db.execute(sql.WORK, given).fetchone()[0]):
            return 0
        again = given | {"now": present.ms}
        await self._shared.run(lambda db, _: db.execute(sql.DATE_AGAIN, again))
        ended = 0
        while count := await self._shared.run(
            lambda db, decisions: ends.time_out(db, present, decisions)
        ):
            ended += count
        return ended

    async def stats(self) -> OpenStats:
        return await self._lookups.run(rows.stats)


def _require_room(
    db: sqlite3.Connection,
    log: int,
    pointer: int,
    messages: Sequence[Message],
    present: Present,
) -> None:
    """Raise TopicFullError, or what no retry will change, unless the topic has room."""
    try:
        room.require(db, ((log, len(data)) for data, _ in messages), present)
    except TopicFullError:
        rows.find_open(db, log, pointer)
        raise
