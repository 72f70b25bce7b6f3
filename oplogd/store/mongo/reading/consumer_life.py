"""Creating and deleting named consumers. See ``consumer_rows`` for their documents.

Creating a consumer:

1. Its document is inserted in the state ``creating``. Now it has the name.
2. ``ended`` is read, and a document of each shard is inserted with this term. The first reader
   gets the next one.
3. The state is removed. Now it is found.

Deleting a consumer:

1. Its document gets the state ``deleting``. It is not found any more, but has the name.
2. The term behind the largest one of its shards goes into ``{_id: "oplog_consumers", ended}`` of
   ``oplog_meta``, unless a larger one is there. No reader has this term.
3. The documents of its shards are removed.
4. Its document is removed.

Each step names the creation (``of``), and may be repeated at any time by any agent. An agent that
creates or deletes a consumer first completes what it finds begun: so nothing is left over from an
agent that died after any step.

Terms of a name never repeat, because a new creation reads ``ended`` after step 1:

- A creation before it had the name until its step 4. Its terms were in ``ended`` then, and
  ``ended`` is read with majority, causally after the insert. If ``ended`` was read before the
  insert, another creation could come, be read and go in between, and its terms would be lost.
- A take whose swap comes after the reading of the terms in step 2 of the deletion: each take looks
  for its creation again, causally after its swap, and is answered only if it is not being deleted.
- A swap finds the same values in a shard inserted by a late creator, after step 3 of the deletion:
  the take looks for its creation again, and does not find it.
- An agent dies between the steps 2 and 3 of a deletion: the terms are noted already.
- A creation is completed by two agents, which have read different values of ``ended``: both are
  large enough. The first document of each shard stays.
- A creation is completed by an agent while another one deletes it: the step 3 of the creation finds
  no state ``creating``. The agent deletes the shards that it has inserted.
- A late step 1 of a creation, after its agent gave up: nobody completes it until the name is
  created or deleted again. Until then it is not found.

A document of a shard that is inserted late, after step 3 of the deletion, may stay. No consumer has
it. It counts among the shards of the store.

The bound of shards is not exact: agents that create consumers at once may exceed it.
"""

import time
import uuid

from pymongo.errors import BulkWriteError, DuplicateKeyError

from oplogd.errors import StoreUnavailableError
from oplogd.model.consumer import MAX_ROWS, ConsumerSettings, ShardPosition
from oplogd.store.consumers import (
    ConsumerRow,
    encode_settings,
    no_consumer,
    other_settings,
    too_many_consumers,
)
from oplogd.store.mongo.link.contention import pause
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.errors import duplicates_in
from oplogd.store.mongo.link.layout import META, Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.reading.consumer_rows import (
    CONSUMERS,
    ConsumerRows,
    consumer_of,
    damaged_shard,
    shard_ids,
    term_of,
)

_CREATING = "creating"
_DELETING = "deleting"


class ConsumerLife:
    """Methods raise also PyMongo's errors."""

    def __init__(self, link: Link, rows: ConsumerRows) -> None:
        self._link = link
        self._rows = rows

    async def create(
        self, name: str, settings: ConsumerSettings, position: str
    ) -> tuple[ConsumerRow, bool]:
        """See ``Consumers.create``."""
        began = time.monotonic()
        own = None
        while True:
            document = await self._rows.document(name)
            if document is None:
                await self._require_room(settings.shards)
                own = uuid.uuid4().hex
                if await self._insert(name, own, settings, position):
                    continue
            elif document.get("state") == _DELETING:
                await self._remove(document)
            elif document.get("state") is not None:
                if await self._complete(document):
                    continue
            else:
                if consumer_of(document).settings != settings:
                    raise other_settings(name)
                for row in await self._rows.with_shards([document]):
                    return row, document["of"] == own
            await pause(self._link, f"the consumer {name}", began)

    async def delete(self, name: str) -> None:
        """See ``Consumers.delete``."""
        began = time.monotonic()
        while (document := await self._rows.document(name)) is not None:
            if document.get("state") == _DELETING:
                await self._remove(document)
                break
            if await self._mark(document):
                await self._link.step("marked")
                await self._remove(document)
                return
            await pause(self._link, f"the consumer {name}", began)
        raise no_consumer(name)

    async def _require_room(self, shards: int) -> None:
        """Raises TooManyConsumersError."""
        if await self._rows.shards.estimated_document_count() + shards > MAX_ROWS:
            raise too_many_consumers()

    async def _insert(self, name: str, of: str, settings: ConsumerSettings, position: str) -> bool:
        """Begin a creation. Return False if there is a consumer of this name."""
        document: Document = {
            "_id": name,
            "of": of,
            "shards": settings.shards,
            "settings": encode_settings(settings),
            "created": await self._link.raw_ms(),
            "state": _CREATING,
            "position": position,
        }
        try:
            async with self._rows.changing() as session:
                await self._rows.consumers.insert_one(document, session=session)
        except DuplicateKeyError:
            return False
        await self._link.step("inserted")
        return True

    async def _complete(self, document: Document) -> bool:
        """Complete a creation that has begun. Return False if another agent did, or deleted it."""
        first = ShardPosition(str(document.get("position")), term=await self._ended())
        shards = [{"_id": id_, "shard": first._asdict()} for id_ in shard_ids(document)]
        await self._link.step("read")
        try:
            async with self._rows.changing() as session:
                await self._rows.shards.insert_many(shards, ordered=False, session=session)
        except BulkWriteError as error:
            duplicates_in(error)
        await self._link.step("shards")
        same = {"_id": document["_id"], "of": document["of"], "state": _CREATING}
        found: Document = {"$unset": {"state": "", "position": ""}}
        async with self._rows.changing() as session:
            changed = await self._rows.consumers.update_one(same, found, session=session)
        if changed.matched_count:
            return True
        now = await self._rows.document(document["_id"]) or {}
        if now.get("of") != document["of"] or now.get("state") == _DELETING:
            await self._remove(document)
        return False

    async def _mark(self, document: Document) -> bool:
        """Begin a deletion. Return False if another agent has deleted the consumer."""
        same = {"_id": document["_id"], "of": document.get("of"), "state": {"$ne": _DELETING}}
        async with self._rows.changing() as session:
            changed = await self._rows.consumers.update_one(
                same, {"$set": {"state": _DELETING}}, session=session
            )
        return changed.matched_count > 0

    async def _remove(self, document: Document) -> None:
        """Complete a deletion that has begun."""
        ids = shard_ids(document)
        terms = []
        for each in (await self._rows.read(ids)).values():
            if (term := term_of(each)) is None:
                raise damaged_shard(each)
            terms.append(term)
        if terms:
            await self._end(max(terms) + 1)
            await self._link.step("ended")
            await self._rows.shards.delete_many({"_id": {"$in": ids}})
        await self._link.step("removed")
        await self._rows.consumers.delete_one({"_id": document["_id"], "of": document["of"]})

    async def _end(self, term: int) -> None:
        """Note a term behind those of a consumer that is being deleted."""
        chosen, change = {"_id": CONSUMERS}, {"$max": {"ended": term}}
        try:
            await self._link.meta.update_one(chosen, change, upsert=True)
        except DuplicateKeyError:  # of another agent's upsert
            await self._link.meta.update_one(chosen, change)

    async def _ended(self) -> int:
        """Return a term behind those of all deleted consumers, 0 if there are none."""
        async with self._link.reading() as session:
            found = await self._link.meta.find_one({"_id": CONSUMERS}, session=session)
        ended = 0 if found is None else whole(found.get("ended"))
        if ended is None:
            raise StoreUnavailableError(
                f"the document {CONSUMERS} of {META} is damaged: ended must be a whole number"
                " larger than the terms of all deleted consumers"
            )
        return ended
