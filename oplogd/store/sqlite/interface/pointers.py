"""The pointers of foreign transactions in the embedded store: see ``Pointers``."""

from collections.abc import Sequence

from oplogd.errors import TopicFullError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.pointer import Decision
from oplogd.store.pointers import FoundPointer, Marks, OpenPointer, PointerKey, TimedOutPointer
from oplogd.store.sqlite.file.shared_write import SharedStep, SharedWriter
from oplogd.store.sqlite.pointers import ends, rows, steps
from oplogd.store.sqlite.pointers import statements as sql
from oplogd.store.sqlite.upkeep import room
from oplogd.store.transactions import OpenStats, RecordLimits


class SqlitePointers(SharedWriter):
    """Each call is one transaction of SQLite."""

    async def publish(
        self, log: int, pointer: int, messages: Sequence[Message], timeout_ms: int
    ) -> Marks:
        def publish(step: SharedStep) -> Marks:
            _require_room(step, log, pointer, messages)
            return steps.publish(step, log, pointer, messages, timeout_ms)

        return await self._run(publish)

    async def store(
        self,
        log: int,
        pointer: int,
        messages: Sequence[Message],
        timeout_ms: int,
        limits: RecordLimits,
    ) -> None:
        def store(step: SharedStep) -> None:
            _require_room(step, log, pointer, messages)
            steps.store(step, log, pointer, messages, timeout_ms, limits)

        await self._run(store)

    async def publish_stored(self, log: int, pointer: int, timeout_ms: int) -> Mark | None:
        return await self._run(lambda step: steps.publish_stored(step, log, pointer, timeout_ms))

    async def rollback(
        self, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool = False
    ) -> Mark | None:
        return await self._run(lambda step: steps.rollback(step, log, pointer, stamps, force=force))

    async def decide(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        return await self._run(lambda step: ends.decide(step, logs, pointer, decision))

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
        ended = 0
        if await self._due(sql.WORK, sql.DATE_AGAIN, 1) is not None:
            while count := await self._run(ends.time_out):
                ended += count
        return ended

    async def stats(self) -> OpenStats:
        return await self._lookups.run(rows.stats)


def _require_room(step: SharedStep, log: int, pointer: int, messages: Sequence[Message]) -> None:
    """Raise TopicFullError, or an error no retry will change, unless the topic has room."""
    try:
        room.require(step.db, ((log, len(data)) for data, _ in messages), step.present)
    except TopicFullError:
        rows.find_open(step.db, log, pointer)
        raise
