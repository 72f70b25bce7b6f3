"""Changes of properties. A longer time to live brings no expired message back."""

from oplogd.errors import TopicNotFoundError
from oplogd.model.names import TopicName, no_topic
from oplogd.model.pointer import DEFAULT_RULES, PointerRules
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.reading.topic_log import TopicReader
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.front import Front
from oplogd.store.topics import Topic

_RULES = ("pointers", "pointer_timeout")


class Expiry:
    def __init__(self, link: Link, catalogue: Catalogue, reader: TopicReader) -> None:
        self._link = link
        self._catalogue = catalogue
        self._reader = reader

    async def change(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        rules = layout.rules_members(pointers)
        unset = {member: "" for member in _RULES if member not in rules}
        while True:
            catalogue, existing = await self._catalogue.look_up(name)
            if existing is None:
                raise no_topic(name)
            default = layout.number(catalogue, "default_ttl")
            before, after = existing["ttl"], default if ttl is None else ttl
            update: Document = {"$set": {"ttl": ttl, "max_bytes": max_bytes, **rules}}
            if unset:
                update["$unset"] = unset
            if after > (default if before is None else before):
                rule = Front(catalogue, existing, await self._link.removal())
                update["$max"] = {"expired": await self._front(existing, rule)}
            same = {"_id": str(name), **layout.numbered(layout.log_of(existing)), "ttl": before}
            if (await self._link.topics.update_one(same, update)).matched_count:
                await self._catalogue.bump()
                changed = layout.topic_of({**existing, "ttl": ttl, "max_bytes": max_bytes})
                return changed._replace(pointers=pointers)

    async def set_default_ttl(self, ttl: int) -> None:
        """Change the default of topics without their own time to live."""
        catalogue = await self._link.topics.find_one({"_id": layout.CATALOGUE})
        if catalogue is None or (before := layout.number(catalogue, "default_ttl")) == ttl:
            return
        if ttl > before:
            async for page in self._catalogue.pages():
                await self._keep_expired(catalogue, [each for each in page if each["ttl"] is None])
        await self._link.topics.update_one(
            {"_id": layout.CATALOGUE}, {"$set": {"default_ttl": ttl}}
        )
        await self._catalogue.bump()

    async def _keep_expired(self, catalogue: Document, documents: list[Document]) -> None:
        now = await self._link.removal()
        rules = {layout.log_of(each): Front(catalogue, each, now) for each in documents}
        firsts = await self._reader.firsts(rules)
        for document in documents:
            log = layout.log_of(document)
            if log not in firsts or not rules[log].may_be_gone(firsts[log]):
                continue
            try:
                front = await self._front(document, rules[log])
            except TopicNotFoundError:  # deleted meanwhile
                continue
            await self._catalogue.update(document, {"$max": {"expired": front}})

    async def _front(self, document: Document, rule: Front) -> int:
        return (await self._reader.front(layout.topic_of(document), rule, rule.floor)).offset
