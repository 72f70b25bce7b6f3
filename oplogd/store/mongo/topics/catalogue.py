"""The catalogue of topics: names, numbers of logs, times to live."""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping

from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DuplicateKeyError

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.errors import NoLogNumberError, StoreUnavailableError, TopicNotFoundError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import stamp, unstamp
from oplogd.model.names import TopicName, no_topic, topic_exists
from oplogd.model.pointer import DEFAULT_RULES, PointerRules
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import Notifier
from oplogd.store.numbers import begin_of, generation_of, is_log, used_up
from oplogd.store.topics import DEFAULT_TTL, Namespace, Topic

# Topics of one page.
_PAGE = 500

# Numbers in use met by one creation, the first of them one by one, the others in rows of so
# many.
_ATTEMPTS = 20
_SINGLE_ATTEMPTS = 8
_PASSED_OVER = 10_000


class Catalogue:
    """``changed`` notifies of changes by this process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.changed = Notifier()

    async def look_up(
        self, name: TopicName, session: AsyncClientSession | None = None
    ) -> tuple[Document, Document | None]:
        """Return the catalogue's document, and the topic's or None."""
        keys = [layout.CATALOGUE, str(name)]
        found = {
            each["_id"]: each
            async for each in self._link.topics.find({"_id": {"$in": keys}}, session=session)
        }
        if layout.CATALOGUE not in found:
            raise self._not_set_up()
        return found[layout.CATALOGUE], found.get(str(name))

    async def of_log(self, log: int, session: AsyncClientSession | None = None) -> Document | None:
        """Return the document of the topic with this log, None if the topic was deleted."""
        found = await self._link.topics.find_one(layout.reserved(log), session=session)
        if found is None:
            return None
        return await self._link.topics.find_one(
            {"_id": found["name"], **layout.numbered(log)}, session=session
        )

    async def rules_of(self, log: int) -> PointerRules:
        """Return the rules of a topic for messages under pointers."""
        document = await self.of_log(log)
        return DEFAULT_RULES if document is None else layout.rules_of(document)

    async def no_topic(self, log: int) -> TopicNotFoundError:
        """Return the error for a deleted topic. It has no name long after its end."""
        found = await self._link.topics.find_one(layout.reserved(log))
        return no_topic(f"with log {log}" if found is None else str(found["name"]))

    async def create(
        self, name: TopicName, ttl: int | None, pointers: PointerRules, max_bytes: int | None
    ) -> Topic:
        catalogue, existing = await self.look_up(name)
        if existing is not None:
            raise topic_exists(name)
        log = await self.reserve(name)
        now_ms = await self._link.now_ms()
        ended = await self._link.topics.find_one({"_id": layout.ended_ahead(str(name))})
        # Past every old id, so a position at the last one has a gap.
        floor_stamp = max(
            stamp(now_ms, 0),
            layout.number(catalogue, "ended_stamp"),
            layout.number(ended, "stamp") if ended else 0,
        )
        document = {
            "_id": str(name),
            **new_log(log, floor_stamp, now_ms),
            "ttl": ttl,
            **layout.rules_members(pointers),
            "max_bytes": max_bytes,
        }
        try:
            await self._link.topics.insert_one(document)
        except DuplicateKeyError:
            await self._link.topics.delete_one(layout.reserved(log))
            raise topic_exists(name) from None
        await self.bump()
        return layout.topic_of(document)

    async def reserve(self, name: TopicName) -> int:
        """Reserve the number of a new log. No log, deleted or not, has it or a larger one.

        Raises NoLogNumberError.
        """
        topics = self._link.topics
        for attempt in range(_ATTEMPTS):
            catalogue = await topics.find_one_and_update(
                {"_id": layout.CATALOGUE},
                {"$inc": {"logs": 1}},
                return_document=ReturnDocument.AFTER,
            )
            if catalogue is None:
                raise self._not_set_up()
            log = layout.number(catalogue, "logs")
            if is_log(log):
                document: Document = {"_id": layout.reservation(log), "name": str(name)}
                if generation := generation_of(log):
                    document["generation"] = generation
                try:
                    await topics.insert_one(document)
                except DuplicateKeyError:
                    if attempt >= _SINGLE_ATTEMPTS:
                        await self._pass_over(log)
                    continue
                # A new log has entries if its number was lost with the collection of topics.
                inside = {"_id": layout.places_of(log, begin_of(log))}
                if not generation or await self._link.entries.find_one(inside, {"_id": 1}) is None:
                    return log
                await topics.delete_one(layout.reserved(log))
        raise NoLogNumberError(used_up(f"MongoDB at {self._link.hosts}"))

    async def _pass_over(self, log: int) -> None:
        """Let the next attempt look behind some numbers in use after this one."""
        inside = {"_id": {"$gt": layout.reservation(log), "$lt": layout.NAMES_FROM}}
        found = self._link.topics.find(inside, {"_id": 1}).sort("_id", 1).limit(_PASSED_OVER)
        last = log
        async for each in found.batch_size(_PASSED_OVER + 1):
            if each["_id"] != layout.reservation(last + 1):
                break
            last += 1
        await self._link.topics.update_one({"_id": layout.CATALOGUE}, {"$max": {"logs": last}})

    async def forget(self, log: int, end: Mark) -> None:
        """Free the name of a topic whose log has ended at a mark. May be repeated.

        First the catalogue takes over the log's last stamp: a later topic continues behind it. A
        stamp ahead concerns only the next topic of this name.
        """
        topics, ended_stamp = self._link.topics, layout.stamp_of(end)
        found = await topics.find_one(layout.reserved(log))
        if ended_stamp <= stamp(await self._link.now_ms() + MAX_LEAD_MS, 0):
            await topics.update_one(
                {"_id": layout.CATALOGUE}, {"$max": {"ended_stamp": ended_stamp}}
            )
        elif found is not None:
            chosen = {"_id": layout.ended_ahead(found["name"])}
            await topics.update_one(chosen, {"$max": {"stamp": ended_stamp}}, upsert=True)
        if found is None:
            return
        if "ended" not in found:
            ended = {"$set": {"ended": await self._link.now_ms()}}
            await topics.update_one({**layout.reserved(log), "ended": None}, ended)
        await self.free(found["name"], log)

    async def free(self, name: str, log: int) -> None:
        """Remove the topic of this name if it has this log."""
        freed = await self._link.topics.delete_one({"_id": name, **layout.numbered(log)})
        if freed.deleted_count:
            await self.bump()

    async def find(self, name: TopicName) -> Topic | None:
        document = await self._link.topics.find_one({"_id": str(name)})
        return None if document is None else layout.topic_of(document)

    async def in_namespace(
        self, namespace: str, after: str = "", limit: int | None = None
    ) -> list[Topic]:
        inside = {"_id": {"$gt": f"{namespace}/{after}", "$lt": f"{namespace}0"}}  # "0" follows "/"
        # A limit of 0: all.
        found = self._link.topics.find(inside).sort("_id", 1).limit(limit or 0).batch_size(1_000)
        return [layout.topic_of(each) async for each in found]

    async def namespaces(self, after: str, limit: int) -> list[Namespace]:
        # Not each name sorts as its namespace does, because "-" and "." are before "/".
        counts: Counter[str] = Counter()
        found = self._link.topics.find({"_id": {"$gte": layout.NAMES_FROM}}, {"_id": 1})
        async for each in found.batch_size(1_000):
            counts[layout.name_of(each["_id"]).namespace] += 1
        # Not in the event loop: there may be as many namespaces as topics.
        return await asyncio.to_thread(_past, counts, after, limit)

    async def current(self, logs: Collection[int]) -> dict[int, Topic]:
        return {log: layout.topic_of(each) for log, each in (await self._documents(logs)).items()}

    async def _documents(self, logs: Collection[int]) -> dict[int, Document]:
        """Return the documents of the topics with these logs, by log."""
        names: list[str] = []
        for keys in layout.parts(map(layout.reservation, logs)):
            reservations = self._link.topics.find({"_id": {"$in": keys}})
            names += [each["name"] async for each in reservations]
        found: dict[int, Document] = {}
        for keys in layout.parts(sorted(set(names))):
            async for each in self._link.topics.find({"_id": {"$in": keys}}):
                found[layout.log_of(each)] = each
        return {log: found[log] for log in logs if log in found}

    async def default_ttl(self) -> int:
        catalogue = await self._link.topics.find_one({"_id": layout.CATALOGUE})
        return DEFAULT_TTL if catalogue is None else layout.number(catalogue, "default_ttl")

    async def pages(self, chosen: Document | None = None) -> AsyncIterator[list[Document]]:
        """Return the documents of all topics, or of the chosen ones, some at a time."""
        last = layout.NAMES_FROM
        while True:
            past = self._link.topics.find({"_id": {"$gt": last}, **(chosen or {})})
            if not (page := await past.sort("_id", 1).limit(_PAGE).to_list()):
                return
            yield page
            last = page[-1]["_id"]

    async def update(self, topic: Document, change: Document) -> None:
        """Update the document of a topic, unless the topic was deleted."""
        same = {"_id": topic["_id"], **layout.numbered(layout.log_of(topic))}
        await self._link.topics.update_one(same, change)

    async def ended_ms(self) -> int:
        """Return the last time in the logs of deleted topics, 0 if there are none."""
        found = await self._link.topics.find_one({"_id": layout.CATALOGUE}, {"ended_stamp": 1})
        return 0 if found is None else unstamp(layout.number(found, "ended_stamp"))[0]

    async def version(self) -> tuple[int, int]:
        """Return the version, and the number of floors raised by bounds in bytes."""
        found = await self._link.topics.find_one(
            {"_id": layout.CATALOGUE}, {"version": 1, "turn": 1}
        )
        return (0, 0) if found is None else (layout.number(found, "version"), found.get("turn", 0))

    async def floors(self, logs: Collection[int]) -> dict[int, int]:
        """Return the offsets of the floors of these logs."""
        floors = {
            log: layout.number(each, "floor") for log, each in (await self._documents(logs)).items()
        }
        return {log: floor for log, floor in floors.items() if floor}

    async def bump(self) -> None:
        """Tell the followers of all agents of a change."""
        await self._link.topics.update_one({"_id": layout.CATALOGUE}, {"$inc": {"version": 1}})
        self.changed.notify()

    def _not_set_up(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"MongoDB at {self._link.hosts}: the topics are being set up")

    async def largest_log(self) -> int:
        """Return the largest known number of a log, 0 if there is none.

        Only entries have it if ``oplog_topics`` was dropped.
        """
        last = await self._link.topics.find_one(layout.RESERVATIONS, {"_id": 1}, sort=[("_id", -1)])
        newest = await self._link.entries.find_one({}, {"_id": 1}, sort=[("_id", -1)])
        return max(
            int(last["_id"][1:], 16) if last else 0,
            layout.number_and_offset(newest["_id"])[0] if newest else 0,
        )


def _past(counts: Mapping[str, int], after: str, limit: int) -> list[Namespace]:
    names = heapq.nsmallest(limit, (name for name in counts if name > after))
    return [Namespace(name, counts[name]) for name in names]


def new_log(log: int, floor_stamp: int, now_ms: int) -> Document:
    """Return the members of a topic's document for a new, empty log."""
    return {
        **layout.numbered(log),
        "floor": begin_of(log),
        "floor_stamp": floor_stamp,
        "expired": 0,
        "created": now_ms,
        "sizes": [],
    }
