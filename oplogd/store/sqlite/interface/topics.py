"""The topics in the embedded store: see ``Topics``."""

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from oplogd.clock.guard import GuardedClock
from oplogd.errors import StoreUnavailableError, TopicNotFoundError
from oplogd.model.names import TopicName, no_topic
from oplogd.model.pointer import DEFAULT_RULES, Decision, PointerRules
from oplogd.store.sqlite.file import statements as sql
from oplogd.store.sqlite.file.connection import ConnectionPool, Pools, StoreFile
from oplogd.store.sqlite.pointers import rows as pointer_rows
from oplogd.store.sqlite.topics import catalogue
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.news import Follower
from oplogd.store.sqlite.upkeep import room, sweep
from oplogd.store.sqlite.upkeep.bounds import BoundsKeeper, bound_figures
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import (
    MessageBatch,
    Namespace,
    News,
    Outcome,
    Topic,
    TopicEntry,
    TopicRecord,
    TopicStats,
)


class SqliteTopicLog:
    def __init__(self, topic: Topic, pools: Pools, clock: GuardedClock) -> None:
        self._topic = topic
        self._present = clock.present
        _, self._readers, self._lookups = pools

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        with self._naming():
            return await self._readers.run(
                lambda db: topic_entries.read(
                    db, self._topic.log, after, limit, at_ms, self._present()
                )
            )

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        with self._naming():
            return await self._lookups.run(
                lambda db: topic_entries.locate(db, self._topic.log, ms, sequence, self._present())
            )

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        with self._naming():
            return await self._readers.run(
                lambda db: pointer_rows.expand(
                    db, self._topic.log, entry, after, limit, self._present()
                )
            )

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        with self._naming():
            return await self._lookups.run(
                lambda db: pointer_rows.decisions(db, self._topic.log, pointers)
            )

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Let the error of a deleted topic name the topic: its row no longer does."""
        try:
            yield
        except TopicNotFoundError:
            raise no_topic(self._topic.name) from None


class SqliteTopics:
    """Uses the pools of its store, and a thread of its own waiting for news.

    That thread begins with the first call of ``news``.
    """

    def __init__(
        self,
        file: StoreFile,
        pools: Pools,
        clock: GuardedClock,
        monotonic: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms
        self._pools = pools
        self._writer, self._readers, self._lookups = pools
        self._news = ConnectionPool(file, "store-news", 1, sql.SMALL_CACHE)
        self._follower = Follower()
        # The version that the follower knows; none before its first call.
        self._version: int | None = None
        self._turn = 0
        self._bounds = BoundsKeeper(pools, self._follower.wake, clock, monotonic)

    async def create(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        topic = await self._writer.run(
            lambda db: catalogue.create(db, name, ttl, pointers, max_bytes, self._now_ms())
        )
        self._bounds.has_bound(topic)
        self._follower.wake()
        return topic

    async def change(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        topic = await self._writer.run(
            lambda db: catalogue.change(db, name, ttl, pointers, max_bytes, self._clock.removal()),
            frees_space=True,
        )
        self._bounds.has_bound(topic)
        self._follower.wake()
        return topic

    async def delete(self, name: TopicName) -> None:
        await self._writer.run(
            lambda db: catalogue.delete(db, name, self._now_ms()), frees_space=True
        )
        self._follower.wake()

    async def find(self, name: TopicName) -> Topic | None:
        return await self._lookups.run(lambda db: catalogue.find(db, name))

    async def in_namespace(
        self, namespace: str, after: str = "", limit: int | None = None
    ) -> list[Topic]:
        return await self._readers.run(
            lambda db: catalogue.in_namespace(db, namespace, after, limit)
        )

    async def namespaces(self, after: str, limit: int) -> list[Namespace]:
        return await self._readers.run(lambda db: catalogue.namespaces(db, after, limit))

    async def current(self, logs: Collection[int]) -> dict[int, Topic]:
        return await self._lookups.run(lambda db: catalogue.current(db, logs))

    async def default_ttl(self) -> int:
        return await self._lookups.run(catalogue.default_ttl)

    def log(self, topic: Topic) -> SqliteTopicLog:
        return SqliteTopicLog(topic, self._pools, self._clock)

    async def append(self, batches: Sequence[MessageBatch]) -> list[Outcome]:
        if self._bounds.exist:
            await self._bounds.before_append()
            outcomes = await self._writer.run(
                lambda db: room.append(db, batches, self._clock.present())
            )
            self._bounds.appended(batches)
        else:
            outcomes = await self._writer.run(
                lambda db: topic_entries.append(db, batches, self._now_ms())
            )
        self._follower.wake()
        return outcomes

    async def news(self, heads: Mapping[int, int], seconds: float) -> News:
        ended = threading.Event()
        known = self._version
        try:
            news, turn = await self._news.run(
                lambda db: self._follower.wait(db, heads, known, self._turn, seconds, ended)
            )
        finally:  # a wait that was cancelled must not delay the next one
            ended.set()
            self._follower.wake()
        self._version, self._turn = news.version, turn
        return news

    async def stats(self) -> TopicStats:
        return await self._lookups.run(_stats)

    async def shrink(self) -> int:
        return await self._bounds.shrink()

    async def sweep(self) -> int:
        """Do ``Topics.sweep``: each step is a call of the writer, so that appends interleave."""
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
            progress = sweep.Progress()
            try:
                while not progress.has_ended:
                    removed += await self._writer.run(
                        partial(step, progress=progress), frees_space=True
                    )
            except StoreUnavailableError as error:
                trouble = error  # a broken table of transactions concerns only some of the logs
        while count := await self._writer.run(partial(sweep.void, now=now)):
            removed += count
        await self._writer.run(partial(sweep.forget_dated, now=now))
        self._follower.wake()
        if trouble is not None:
            raise trouble
        return removed

    def wake(self) -> None:
        """Let the follower look for news now."""
        self._follower.wake()

    async def close(self) -> None:
        self._follower.close()
        await self._news.close()


def _stats(db: sqlite3.Connection) -> TopicStats:
    topics, numbers = catalogue.count(db)
    return TopicStats(topics, numbers, *bound_figures(db))
