"""The documents of named consumers and of their shards, and changes of single shards.

``oplog_consumers`` holds ``{_id: name, of, shards, settings, created, state, position}``. ``of``:
the random name of this creation. ``settings``: as ``encode_settings`` writes them. ``state`` and
``position``: of a consumer that is being created or deleted. Only a consumer without a state is
found by readers.

``oplog_consumer_shards`` holds ``{_id: "of/number", shard: {position, place, term, reader,
acknowledged_ms}}``. The members of the shard are set as one value, as in a lease. Each change is
one compare-and-set.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Any, NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.errors import ConsumerNotFoundError, StoreUnavailableError
from oplogd.model.consumer import NamedConsumer, ShardKey, ShardPosition
from oplogd.model.lease import MAX_TERM
from oplogd.model.shard import MAX_SHARDS
from oplogd.store.consumers import ConsumerRow, decode_settings, no_consumer
from oplogd.store.mongo.link.contention import pause
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import parts

CONSUMERS = "oplog_consumers"
SHARDS = "oplog_consumer_shards"

# Returns a shard after a change, from that before it.
Rule = Callable[[ShardPosition], ShardPosition]


class ShardDocuments(NamedTuple):
    """The document of a consumer, and that of one of its shards."""

    consumer: Document
    shard: Document


class ShardChange(NamedTuple):
    """``consumer``: its document, as it was found before the change."""

    consumer: Document
    before: ShardPosition
    after: ShardPosition


class ConsumerRows:
    """Methods raise PyMongo's errors, and StoreUnavailableError for damaged documents.

    Each read sees everything read and changed before, also after a fail-over.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.consumers = link.database[CONSUMERS]
        self.shards = link.database[SHARDS]

    @contextlib.asynccontextmanager
    async def changing(self) -> AsyncIterator[AsyncClientSession | None]:
        """Provide a session for one change, which later reads see. None: see ``Link.session``."""
        session = self._link.session()
        try:
            async with session or contextlib.nullcontext():
                yield session
        finally:
            self._link.saw(session)

    async def document(self, name: str) -> Document | None:
        """Return the document of a consumer in any state."""
        async with self._link.reading() as session:
            return await self.consumers.find_one({"_id": name}, session=session)

    async def existing(self, name: str) -> Document:
        """Return the document of a consumer. Raises ConsumerNotFoundError."""
        document = await self.document(name)
        if document is None or document.get("state") is not None:
            raise no_consumer(name)
        return document

    async def is_there(self, document: Document) -> bool:
        """Return whether a consumer was not deleted meanwhile."""
        try:
            now = await self.existing(document["_id"])
        except ConsumerNotFoundError:
            return False
        return bool(now.get("of") == document["of"])

    async def page(self, after: str, limit: int) -> list[Document]:
        past: Document = {"_id": {"$gt": after}, "state": None}
        async with self._link.reading() as session:
            found = self.consumers.find(past, session=session).sort("_id", 1)
            return await found.limit(limit).to_list()

    async def with_shards(self, documents: Collection[Document]) -> list[ConsumerRow]:
        """Return the consumers of documents, without those that were deleted meanwhile."""
        found = await self.read([id_ for each in documents for id_ in shard_ids(each)])
        rows = []
        for each in documents:
            ids = shard_ids(each)
            missing = [id_ for id_ in ids if id_ not in found]
            if not missing:
                rows.append(
                    ConsumerRow(consumer_of(each), [position_of(found[id_]) for id_ in ids])
                )
            elif await self.is_there(each):
                raise _lost(missing[0], each)
            await asyncio.sleep(0)  # a page may have 50,000 shards
        return rows

    async def of_keys(self, keys: Iterable[ShardKey]) -> dict[ShardKey, ShardDocuments]:
        """Return the documents of shards, without those that are not there."""
        wanted = set(keys)
        consumers: dict[str, Document] = {}
        async with self._link.reading() as session:
            for names in parts(sorted({key.name for key in wanted})):
                chosen = {"_id": {"$in": names}, "state": None}
                async for each in self.consumers.find(chosen, session=session):
                    consumers[each["_id"]] = each
        ids = {
            key: f"{consumers[key.name].get('of')}/{key.shard}"
            for key in wanted
            if key.name in consumers
        }
        found = await self.read(ids.values())
        return {
            key: ShardDocuments(consumers[key.name], found[id_])
            for key, id_ in ids.items()
            if id_ in found
        }

    async def read(self, ids: Iterable[str]) -> dict[str, Document]:
        """Return the documents of shards by their ids."""
        found: dict[str, Document] = {}
        async with self._link.reading() as session:
            for some in parts(ids):
                chosen = self.shards.find({"_id": {"$in": some}}, session=session)
                found |= {each["_id"]: each async for each in chosen}
        return found

    async def change(
        self,
        key: ShardKey,
        rule: Rule,
        known: ShardDocuments | None = None,
    ) -> ShardChange:
        """Change a shard by a rule. ``known``: its documents, as they were just read.

        Raises ConsumerNotFoundError, and the errors of the rule.
        """
        began = time.monotonic()
        while True:
            consumer, shard = known or await self._find(key)
            before = position_of(shard)
            after = rule(before)
            if after == before or await self._swap(shard["_id"], before, after):
                return ShardChange(consumer, before, after)
            await pause(self._link, f"the consumer {key.name}", began)
            known = None

    async def _find(self, key: ShardKey) -> ShardDocuments:
        """Raises ConsumerNotFoundError."""
        consumer = await self.existing(key.name)
        ids = shard_ids(consumer)
        if not 0 <= key.shard < len(ids):
            raise no_consumer(key.name)
        found = await self.read([ids[key.shard]])
        for shard in found.values():
            return ShardDocuments(consumer, shard)
        if await self.is_there(consumer):
            raise _lost(ids[key.shard], consumer)
        raise no_consumer(key.name)

    async def _swap(self, id_: str, before: ShardPosition, after: ShardPosition) -> bool:
        """Write a shard if it is unchanged. Return whether it was, once a majority has it."""
        same = {f"shard.{member}": value for member, value in before._asdict().items()}
        async with self.changing() as session:
            swapped: Any = await self.shards.find_one_and_update(
                {"_id": id_, **same}, {"$set": {"shard": after._asdict()}}, session=session
            )
        return swapped is not None


def shard_ids(document: Document) -> list[str]:
    """Return the ids of the documents of a consumer's shards."""
    of, count = document.get("of"), whole(document.get("shards"))
    if not isinstance(of, str) or count is None or not 0 < count <= MAX_SHARDS:
        raise _damaged(CONSUMERS, document, f"of must be a string, shards 1 to {MAX_SHARDS}")
    return [f"{of}/{number}" for number in range(count)]


def consumer_of(document: Document) -> NamedConsumer:
    settings, created_ms = document.get("settings"), whole(document.get("created"))
    if not isinstance(settings, str) or created_ms is None:
        raise _damaged(CONSUMERS, document, "settings must be a string, created a whole number")
    decoded = decode_settings(settings)
    if decoded.shards != len(shard_ids(document)):
        raise _damaged(CONSUMERS, document, "shards must be those of its settings")
    return NamedConsumer(document["_id"], decoded, created_ms)


def term_of(document: Document) -> int | None:
    """Return the term of a shard; None if it is damaged."""
    shard = document.get("shard")
    term = whole(shard.get("term")) if isinstance(shard, dict) else None
    return None if term is None or not 0 <= term <= MAX_TERM else term


def position_of(document: Document) -> ShardPosition:
    found = document.get("shard")
    shard: Document = found if isinstance(found, dict) else {}
    position, place, reader = (shard.get(name) for name in ("position", "place", "reader"))
    term, acknowledged_ms = term_of(document), whole(shard.get("acknowledged_ms"))
    if (
        not isinstance(position, str)
        or not isinstance(place, str | None)
        or not isinstance(reader, str)
        or term is None
        or acknowledged_ms is None
    ):
        raise damaged_shard(document)
    return ShardPosition(position, place, term, reader, acknowledged_ms)


def damaged_shard(document: Document) -> StoreUnavailableError:
    return _damaged(
        SHARDS,
        document,
        "position, place and reader must be strings, acknowledged_ms a whole number, term one of"
        " 1 to 18 digits; make its term larger",
    )


def _damaged(collection: str, document: Document, rules: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the document {document.get('_id')} of {collection} is damaged, put it right: {rules}"
    )


def _lost(id_: str, consumer: Document) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{SHARDS} has lost the document {id_}; delete the consumer {consumer['_id']}, and create"
        " it again"
    )
