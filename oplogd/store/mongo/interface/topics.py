"""The topics of a database that several agents share."""

from collections.abc import Sequence

from oplogd.errors import TopicExistsError
from oplogd.model.event_id import Mark
from oplogd.model.names import TopicName, no_topic
from oplogd.model.pointer import DEFAULT_RULES, PointerRules
from oplogd.store.mongo.decisions.leaving import Leaving
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import CATALOGUE, NAMES_FROM, RESERVATIONS
from oplogd.store.mongo.pointers.stored import StoredMessages
from oplogd.store.mongo.reading.expiry import Expiry
from oplogd.store.mongo.reading.topic_log import MongoTopicLog, TopicReader, Working, guarded
from oplogd.store.mongo.topics.ahead import AheadTopics
from oplogd.store.mongo.topics.append import TopicAppender
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.heads import TopicHeads
from oplogd.store.mongo.topics.news import NewsWatcher
from oplogd.store.mongo.topics.setup import TopicsSetup
from oplogd.store.mongo.upkeep.bounds import Bounds
from oplogd.store.mongo.upkeep.sweep import Sweeper
from oplogd.store.topics import Full, MessageBatch, Outcome, Topic, TopicStats


class MongoTopics:
    """See ``Topics``. ``ttl`` and ``max_bytes``: see ``TopicsSetup``. ``working`` guards each call.

    The attributes are its parts.
    """

    def __init__(
        self,
        link: Link,
        lease: FoldLease,
        ttl: int | None,
        working: Working,
        max_bytes: int | None = None,
    ) -> None:
        self._link = link
        self._working = working
        self.catalogue = Catalogue(link)
        # No sweep removes a head that was seen so recently.
        recent_seconds = max(link.timing.settle_seconds / 2, link.timing.late_seconds)
        self.heads = TopicHeads(link, self.catalogue, recent_seconds)
        self.ahead = AheadTopics(link, self.catalogue, self.heads)
        self.appender = TopicAppender(link, self.catalogue, self.heads)
        self.stored = StoredMessages(link)
        self.reader = TopicReader(link, self.catalogue, self.heads, self.stored)
        self.expiry = Expiry(link, self.catalogue, self.reader)
        self.setup = TopicsSetup(link, self.catalogue, self.expiry.set_default_ttl, ttl, max_bytes)
        self.sweeper = Sweeper(
            link,
            self.catalogue,
            self.heads,
            self.reader,
            lease,
            Leaving(link, self.catalogue, self.stored, self.appender),
        )
        self.bounds = Bounds(
            link,
            self.catalogue,
            self.heads,
            self.sweeper.remove_past,
            self.stored.waiting_bytes,
            lease,
        )
        self.change = guarded(working, self.expiry.change)
        self.find = guarded(working, self.catalogue.find)
        self.in_namespace = guarded(working, self.catalogue.in_namespace)
        self.namespaces = guarded(working, self.catalogue.namespaces)
        self.current = guarded(working, self.catalogue.current)
        self.default_ttl = guarded(working, self.catalogue.default_ttl)
        self.news = guarded(working, NewsWatcher(link, self.catalogue, self.heads).news)
        self.sweep = guarded(working, self.sweeper.sweep)
        self.shrink = guarded(working, self.bounds.shrink)

    async def create(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        async with self._working():
            try:
                return await self.catalogue.create(name, ttl, pointers, max_bytes)
            except TopicExistsError:  # finish a deletion if the log has ended
                topic = await self.catalogue.find(name)
                head = None if topic is None else await self.heads.of(topic.log)
                if topic is not None and (head is None or not head.is_ended):
                    raise
                if topic is not None and head is not None:
                    await self.catalogue.forget(topic.log, head.mark)
            return await self.catalogue.create(name, ttl, pointers, max_bytes)

    async def delete(self, name: TopicName) -> None:
        """First end the log, then free the name.

        Any agent frees the name at the end of a log. So it finishes a deletion cut in between.
        """
        async with self._working():
            topic = await self.catalogue.find(name)
            if topic is None:
                raise no_topic(name)
            end = await self.appender.end(topic.log)
            if end is not None:
                await self.catalogue.forget(topic.log, end)

    async def end_behind(self, log: int, head: Mark) -> bool:
        """Delete a topic unless an entry follows this head. Return whether it is gone."""
        end = await self.appender.end(log, head.offset)
        if end is None:
            return False
        await self.catalogue.forget(log, end)
        return True

    def log(self, topic: Topic) -> MongoTopicLog:
        return MongoTopicLog(self.reader, topic, self._working)

    async def append(self, batches: Sequence[MessageBatch]) -> list[Outcome]:
        full = {batch.log: reason for batch in batches if (reason := self.bounds.reason(batch.log))}
        rest = [batch for batch in batches if batch.log not in full]
        async with self._working():
            groups = await self.appender.append(rest)
            for group in groups:
                if group.ended is not None:
                    await self.catalogue.forget(group.log, group.ended)
        placed = (group.outcome for group in groups)
        return [Full(full[batch.log]) if batch.log in full else next(placed) for batch in batches]

    async def stats(self) -> TopicStats:
        async with self._working():
            names = {"_id": {"$gte": NAMES_FROM}}
            topics = await self._link.topics.count_documents(names)
            numbers = await self._link.topics.count_documents(RESERVATIONS)
            found = await self._link.topics.find_one({"_id": CATALOGUE}) or {}
            most = whole(found.get("topics_max_bytes"))
            return TopicStats(topics, numbers, found.get("octets", 0), most, found.get("left", 0))
