"""The named consumers: ``Consumers`` on MongoDB."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial

from oplogd.errors import OplogError
from oplogd.model.consumer import (
    Acknowledgement,
    ConsumerSettings,
    NamedConsumer,
    ShardKey,
    ShardPosition,
    acknowledged,
    sought,
    taken,
)
from oplogd.store.consumers import Acknowledged, ConsumerRow, no_consumer
from oplogd.store.mongo.link.errors import translating
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.reading.consumer_life import ConsumerLife
from oplogd.store.mongo.reading.consumer_rows import (
    ConsumerRows,
    Rule,
    ShardChange,
    consumer_of,
    shard_ids,
    term_of,
)
from oplogd.store.mongo.reading.topic_log import Working

# Changes of shards at a time in one call.
_AT_ONCE = 8


class MongoConsumers:
    """See ``Consumers``. ``working`` guards each call."""

    def __init__(self, link: Link, working: Working) -> None:
        self._link = link
        self._rows = ConsumerRows(link)
        self._life = ConsumerLife(link, self._rows)
        self._working = working

    async def create(
        self, name: str, settings: ConsumerSettings, position: str
    ) -> tuple[ConsumerRow, bool]:
        async with self._working():
            return await self._life.create(name, settings, position)

    async def find(self, name: str) -> ConsumerRow:
        async with self._working():
            return await self._find(name)

    async def select(self, after: str, limit: int) -> list[ConsumerRow]:
        async with self._working():
            rows: list[ConsumerRow] = []
            # Consumers deleted meanwhile do not shorten the page.
            while left := limit - len(rows):
                documents = await self._rows.page(after, left)
                rows += await self._rows.with_shards(documents)
                if len(documents) < left:
                    break
                after = documents[-1]["_id"]
            return rows

    async def delete(self, name: str) -> None:
        async with self._working():
            await self._life.delete(name)

    async def seek(self, name: str, shards: Collection[int], position: str) -> ConsumerRow:
        """Shards move one by one: after an error some may have moved."""
        async with self._working():
            numbers = set(shards)
            if not numbers <= set(range(len(shard_ids(await self._rows.existing(name))))):
                raise no_consumer(name)
            rule = partial(sought, position=position)
            for outcome in await self._change([(ShardKey(name, each), rule) for each in numbers]):
                if isinstance(outcome, OplogError):
                    raise outcome
            return await self._find(name)

    async def take(
        self, key: ShardKey, reader: str, term: int | None
    ) -> tuple[NamedConsumer, ShardPosition]:
        async with self._working():
            rule = partial(taken, key=key, reader=reader, term=term)
            document, before, after = await self._rows.change(key, rule)
            if after.term != before.term:
                await self._link.step("taken")
                # A deletion may have read the terms before.
                if not await self._rows.is_there(document):
                    raise no_consumer(key.name)
            return consumer_of(document), after

    async def acknowledge(self, given: Sequence[Acknowledgement]) -> list[Acknowledged]:
        """See ``Consumers``. A StoreUnavailableError of a single one is its outcome, too."""
        async with self._working():
            now_ms = await self._link.raw_ms()
            outcomes = await self._change(
                [(each.key, partial(acknowledged, given=each, now_ms=now_ms)) for each in given]
            )
        return [
            Acknowledged(None, each)
            if isinstance(each, OplogError)
            else Acknowledged(each.after, is_older=each.after is each.before)
            for each in outcomes
        ]

    async def terms(self, keys: Collection[ShardKey]) -> dict[ShardKey, int]:
        """See ``Consumers``. Damaged shards are missing, too: a reader that takes one is told."""
        async with self._working():
            found = await self._rows.of_keys(keys)
        terms = {key: term_of(each.shard) for key, each in found.items()}
        return {key: term for key, term in terms.items() if term is not None}

    async def _change(
        self, changes: Sequence[tuple[ShardKey, Rule]]
    ) -> list[ShardChange | OplogError]:
        """Change shards, some at a time. The error of one does not end the others."""
        known = await self._rows.of_keys(key for key, _ in changes)
        few = asyncio.Semaphore(_AT_ONCE)

        async def change(key: ShardKey, rule: Rule) -> ShardChange | OplogError:
            try:
                async with few:
                    with translating(self._link.hosts):
                        return await self._rows.change(key, rule, known.get(key))
            except OplogError as error:
                return error

        return await asyncio.gather(*(change(*each) for each in changes))

    async def _find(self, name: str) -> ConsumerRow:
        """Raises ConsumerNotFoundError."""
        for row in await self._rows.with_shards([await self._rows.existing(name)]):
            return row
        raise no_consumer(name)
