"""The topics in the embedded store: see ``Topics``."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from oplogd.clock.guard import GuardedClock
from oplogd.errors import StoreUnavailableError, TopicNotFoundError
from oplogd.model.names import TopicName, no_topic
from oplogd.model.pointer import DEFAULT_RULES, Decision, PointerRules
from oplogd.store.sqlite.file.connection import StoreFile
from oplogd.store.sqlite.file.pool import ConnectionPool, Pools
from oplogd.store.sqlite.pointers import rows as pointer_rows
from oplogd.store.sqlite.topics import catalogue
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.news import Follower
from oplogd.store.sqlite.upkeep import room, sweep
from oplogd.store.sqlite.upkeep.bounds import BoundsKeeper, bound_figures
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import MessageBatch, Outcome, Topic, TopicEntry, TopicRecord, TopicStats

_T = TypeVar("_T")


class SqliteTopicLog:
    def __init__(self, topic: Topic, pools: Pools, clock: GuardedClock) -> None:
        self._topic = topic
        self._present = clock.present
        _, self._readers, self._lookups = pools

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        return await self._run(
            self._readers,
            lambda db, log: topic_entries.read(db, log, after, limit, at_ms, self._present()),
        )

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        log = self._topic.log
        with self._naming():
            return await self._lookups.run_shared(
                (topic_entries.locate, log, ms, sequence),
                lambda db: topic_entries.locate(db, log, ms, sequence, self._present()),
            )

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        return await self._run(
            self._readers,
            lambda db, log: pointer_rows.expand(db, log, entry, after, limit, self._present()),
        )

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        return await self._run(
            self._lookups, lambda db, log: pointer_rows.decisions(db, log, pointers)
        )

    async def _run(self, pool: ConnectionPool, call: Callable[[sqlite3.Connection, int], _T]) -> _T:
        with self._naming():
            return await pool.run(lambda db: call(db, self._topic.log))

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Let the error of a deleted topic name the topic: its row has no name any more."""
        try:
            yield
        except TopicNotFoundError:
            raise no_topic(self._topic.name) from None


class SqliteTopics:
    """Uses the pools of its store. ``wake`` lets the follower look for news.

    ``changes``: see ``BoundsKeeper``.
    """

    def __init__(
        self,
        file: StoreFile,
        pools: Pools,
        clock: GuardedClock,
        monotonic: Callable[[], float],
        *,
        changes: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms
        self._pools = pools
        self._writer, self._readers, self._lookups = pools
        follower = Follower(file)
        self.news, self.wake, self.close = follower.news, follower.wake, follower.close
        self._bounds = BoundsKeeper(pools, follower.wake, clock, monotonic, changes=changes)
        self.shrink = self._bounds.shrink
        self.current = pools.lookups.method(catalogue.current)
        self.default_ttl = pools.lookups.method(catalogue.default_ttl)
        self.stats = pools.lookups.method(_stats)
        self.in_namespace = pools.readers.method(catalogue.in_namespace)
        self.namespaces = pools.readers.method(catalogue.namespaces)

    async def find(self, name: TopicName) -> Topic | None:
        return await self._lookups.run_shared(
            (catalogue.find, name), lambda db: catalogue.find(db, name)
        )

    async def create(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        topic = Topic(0, name, ttl, pointers, max_bytes)
        return self._changed(
            await self._writer.run(lambda db: catalogue.create(db, topic, self._now_ms()))
        )

    async def change(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        topic = Topic(0, name, ttl, pointers, max_bytes)
        return self._changed(
            await self._writer.run(
                lambda db: catalogue.change(db, topic, self._clock.removal()), frees_space=True
            )
        )

    def _changed(self, topic: Topic) -> Topic:
        self._bounds.has_bound(topic)
        self.wake()
        return topic

    async def delete(self, name: TopicName) -> None:
        await self._writer.run(
            lambda db: catalogue.delete(db, name, self._now_ms()), frees_space=True
        )
        self.wake()

    def log(self, topic: Topic) -> SqliteTopicLog:
        return SqliteTopicLog(topic, self._pools, self._clock)

    async def append(self, batches: Sequence[MessageBatch]) -> list[Outcome]:
        await self._bounds.before_append()
        if self._bounds.exist:
            outcomes = await self._writer.run(
                lambda db: room.append(db, batches, self._clock.present())
            )
            self._bounds.appended(batches)
        else:
            outcomes = await self._writer.run(
                lambda db: topic_entries.append(db, batches, self._now_ms())
            )
        self.wake()
        return outcomes

    async def sweep(self) -> int:
        """Each step is a call of the writer, so appends interleave."""
        if not await self._lookups.run(sweep.is_needed):
            return 0  # the readers' thread and its connection cost memory
        removed = 0
        trouble: StoreUnavailableError | None = None
        steps = [partial(sweep.forget, log=log) for log in await self._readers.run(sweep.deleted)]
        now = self._clock.removal()
        for log in await self._readers.run(lambda db: sweep.expired(db, now)):
            steps.append(partial(sweep.trim, log=log, now=now))
        steps.append(partial(sweep.void_aborted, now=self._now_ms()))
        for step in steps:
            try:
                removed += await sweep.complete(self._writer, step)
            except StoreUnavailableError as error:
                trouble = error  # a broken table of transactions concerns only some of the logs
        while count := await self._writer.run(partial(sweep.void, now=now)):
            removed += count
        await self._writer.run(partial(sweep.forget_dated, now=now))
        self.wake()
        if trouble is not None:
            raise trouble
        return removed


def _stats(db: sqlite3.Connection) -> TopicStats:
    topics, numbers = catalogue.count(db)
    return TopicStats(topics, numbers, *bound_figures(db))
