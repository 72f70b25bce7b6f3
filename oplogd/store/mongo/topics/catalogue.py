"""The catalogue of topics: names, numbers of logs, times to live."""

from collections.abc import AsyncIterator, Collection, Sequence

from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DuplicateKeyError

from oplogd.errors import StoreUnavailableError
from oplogd.message_id import stamp
from oplogd.names import TopicName, topic_exists
from oplogd.pointer import DEFAULT_RULES, PointerRules
from oplogd.store.mongo.link import Link
from oplogd.store.mongo.notifier import Notifier
from oplogd.store.mongo.topics.layout import (
    CATALOGUE,
    NAMES_FROM,
    Document,
    log_and_offset,
    number,
    parts,
    reservation,
    rules_members,
    rules_of,
    topic_of,
)
from oplogd.store.topics import DEFAULT_TTL, MAX_LOG, Topic

# Topics of one page.
_PAGE = 500


class Catalogue:
    """Methods raise PyMongo's errors, and StoreUnavailableError.

    ``changed`` notifies of changes by this process.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.changed = Notifier()

    async def look_up(
        self, name: TopicName, session: AsyncClientSession | None = None
    ) -> tuple[Document, Document | None]:
        """Return the catalogue's document, and the topic's or None."""
        keys = [CATALOGUE, str(name)]
        found = {
            each["_id"]: each
            async for each in self._link.topics.find({"_id": {"$in": keys}}, session=session)
        }
        if CATALOGUE not in found:
            raise self._not_set_up()
        return found[CATALOGUE], found.get(str(name))

    async def of_log(self, log: int, session: AsyncClientSession | None = None) -> Document | None:
        """Return the document of the topic that has this log; None after it was deleted."""
        reserved = await self._link.topics.find_one({"_id": reservation(log)}, session=session)
        if reserved is None:
            return None
        return await self._link.topics.find_one(
            {"_id": reserved["name"], "log": log}, session=session
        )

    async def rules_of(self, log: int) -> PointerRules:
        """Return the rules of a topic for messages under pointers."""
        document = await self.of_log(log)
        return DEFAULT_RULES if document is None else rules_of(document)

    async def name_of_log(self, log: int) -> str | None:
        """Return the name of the topic that has, or had, this log; None long after its end."""
        reserved = await self._link.topics.find_one({"_id": reservation(log)})
        return None if reserved is None else str(reserved["name"])

    async def create(self, name: TopicName, ttl: int | None, pointers: PointerRules) -> Topic:
        """See ``Topics.create``."""
        catalogue, existing = await self.look_up(name)
        if existing is not None:
            raise topic_exists(name)
        log = await self.reserve(name)
        now_ms = await self._link.now_ms()
        # Past every old id, so that a position at the last one has a gap.
        floor_stamp = max(stamp(now_ms, 0), number(catalogue, "ended_stamp"))
        document = {
            "_id": str(name),
            **new_log(log, floor_stamp, now_ms),
            "ttl": ttl,
            **rules_members(pointers),
        }
        try:
            await self._link.topics.insert_one(document)
        except DuplicateKeyError:
            await self._link.topics.delete_one({"_id": reservation(log)})
            raise topic_exists(name) from None
        await self.bump()
        return topic_of(document)

    async def reserve(self, name: TopicName) -> int:
        """Reserve the number of a new log. No log, deleted or not, has it or a larger one."""
        topics = self._link.topics
        while True:
            catalogue = await topics.find_one_and_update(
                {"_id": CATALOGUE}, {"$inc": {"logs": 1}}, return_document=ReturnDocument.AFTER
            )
            if catalogue is None:
                raise self._not_set_up()
            if (log := number(catalogue, "logs")) > MAX_LOG:
                raise StoreUnavailableError(
                    f"MongoDB at {self._link.hosts}: all {MAX_LOG:,} numbers of topics are used"
                )
            try:
                await topics.insert_one({"_id": reservation(log), "name": str(name)})
            except DuplicateKeyError:
                continue
            return log

    async def forget(self, log: int, ended_stamp: int) -> None:
        """Free the name of a topic whose log has ended. May be repeated.

        First the catalogue takes over the log's last stamp: a topic created afterwards continues
        behind it.
        """
        topics = self._link.topics
        await topics.update_one({"_id": CATALOGUE}, {"$max": {"ended_stamp": ended_stamp}})
        reserved = await topics.find_one({"_id": reservation(log)})
        if reserved is None:
            return
        if "ended" not in reserved:
            ended = {"$set": {"ended": await self._link.now_ms()}}
            await topics.update_one({"_id": reservation(log), "ended": None}, ended)
        await self.free(reserved["name"], log)

    async def free(self, name: str, log: int) -> None:
        """Remove the topic of this name if it has this log."""
        freed = await self._link.topics.delete_one({"_id": name, "log": log})
        if freed.deleted_count:
            await self.bump()

    async def find(self, name: TopicName) -> Topic | None:
        document = await self._link.topics.find_one({"_id": str(name)})
        return None if document is None else topic_of(document)

    async def in_namespace(self, namespace: str) -> list[Topic]:
        inside = {"_id": {"$gte": f"{namespace}/", "$lt": f"{namespace}0"}}  # "0" follows "/"
        found = self._link.topics.find(inside).sort("_id", 1).batch_size(1_000)
        return [topic_of(each) async for each in found]

    async def current(self, logs: Collection[int]) -> dict[int, Topic]:
        names: list[str] = []
        for keys in parts(map(reservation, logs)):
            found = self._link.topics.find({"_id": {"$in": keys}})
            names += [each["name"] async for each in found]
        topics = [topic_of(each) for each in await self.documents(sorted(set(names)))]
        wanted = set(logs)
        return {topic.log: topic for topic in topics if topic.log in wanted}

    async def documents(self, names: Sequence[str]) -> list[Document]:
        found: list[Document] = []
        for keys in parts(names):
            found += await self._link.topics.find({"_id": {"$in": keys}}).to_list()
        return found

    async def default_ttl(self) -> int:
        catalogue = await self._link.topics.find_one({"_id": CATALOGUE})
        return DEFAULT_TTL if catalogue is None else number(catalogue, "default_ttl")

    async def pages(self) -> AsyncIterator[list[Document]]:
        """Return the documents of all topics, some at a time."""
        last = NAMES_FROM
        while True:
            past = self._link.topics.find({"_id": {"$gt": last}}).sort("_id", 1).limit(_PAGE)
            if not (page := await past.to_list()):
                return
            yield page
            last = page[-1]["_id"]

    async def version(self) -> int:
        found = await self._link.topics.find_one({"_id": CATALOGUE}, {"version": 1})
        return 0 if found is None else number(found, "version")

    async def bump(self) -> None:
        """Tell the followers of all agents that the catalogue has changed."""
        await self._link.topics.update_one({"_id": CATALOGUE}, {"$inc": {"version": 1}})
        self.changed.notify()

    def _not_set_up(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"MongoDB at {self._link.hosts}: the topics are being set up")

    async def largest_log(self) -> int:
        """Return the largest number of a log that was ever used, 0 if there is none.

        It may be known from entries only, if ``oplog_topics`` was dropped.
        """
        reserved = {"_id": {"$gt": CATALOGUE, "$lt": NAMES_FROM}}
        last = await self._link.topics.find_one(reserved, {"_id": 1}, sort=[("_id", -1)])
        newest = await self._link.entries.find_one({}, {"_id": 1}, sort=[("_id", -1)])
        return max(
            int(last["_id"][1:], 16) if last else 0,
            log_and_offset(newest["_id"])[0] if newest else 0,
        )


def new_log(log: int, floor_stamp: int, now_ms: int) -> Document:
    """Return the members of a topic's document that describe a new, empty log."""
    return {"log": log, "floor": 0, "floor_stamp": floor_stamp, "expired": 0, "created": now_ms}
