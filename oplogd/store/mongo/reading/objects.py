"""Look-ups of objects among the states, by their keys: the ids of the documents."""

from collections.abc import Sequence

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.model.event_id import Mark
from oplogd.store.base import decode_stored
from oplogd.store.mongo.link import layout
from oplogd.store.mongo.link.damage import offset_of
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.read_size import READ_CHARACTERS, ReadSize
from oplogd.store.mongo.reading.topic_log import Working
from oplogd.store.mongo.states.pages import require_states
from oplogd.store.objects import (
    FEW_KEYS,
    ObjectsPage,
    ObjectState,
    Selection,
    Span,
    keys_of,
    spans_of,
)

# Documents found, and the key behind which there are more.
_Found = tuple[list[Document], str | None]


class MongoObjects:
    """See ``Objects``. ``working`` guards each call."""

    def __init__(self, link: Link, working: Working) -> None:
        self._link = link
        self._working = working
        self._read_size = ReadSize()

    async def find(self, type_: str, id_: str) -> ObjectState | None:
        async with self._working(), self._link.reading() as session:
            found = await self._link.states.find_one({"_id": f"{type_}/{id_}"}, session=session)
            if found is None:
                await require_states(self._link, session)
                return None
        return self._state(found)

    async def of_keys(self, keys: Sequence[str]) -> list[ObjectState]:
        async with self._working(), self._link.reading() as session:
            found, _ = await self._of_keys(keys, FEW_KEYS, session)
            await require_states(self._link, session)
        return [self._state(document) for document in found]

    async def page(self, after: str, limit: int, selection: Selection) -> ObjectsPage:
        keys = keys_of(selection, after)
        async with self._working(), self._link.reading() as session:
            if keys is None:
                found, next_ = await self._of_spans(spans_of(selection, after), limit, session)
            else:
                found, next_ = await self._of_keys(keys, limit, session)
            if next_ is None:
                await require_states(self._link, session)
        states = [self._state(document) for document in found]
        return ObjectsPage(
            [
                state
                for state in states
                if not state.deleted
                and selection.matches_state(decode_stored(state.data), deleted=False)
            ],
            next_,
        )

    async def _of_keys(
        self, keys: Sequence[str], limit: int, session: AsyncClientSession | None
    ) -> _Found:
        """Return the states of keys, up to a number and a size."""
        found: list[Document] = []
        start = size = 0
        while start < len(keys):
            if start >= limit or size > READ_CHARACTERS:
                return found, keys[start - 1]
            chosen = keys[start : min(start + FEW_KEYS, limit)]
            cursor = self._link.states.find({"_id": {"$in": chosen}}, session=session)
            by_key = {document["_id"]: document async for document in cursor}
            found += [by_key[key] for key in chosen if key in by_key]
            size += sum(map(layout.weight, by_key.values()))
            start += len(chosen)
        return found, None

    async def _of_spans(
        self, spans: Sequence[Span], limit: int, session: AsyncClientSession | None
    ) -> _Found:
        """Return all states in spans, up to a number and a size. An empty span counts as one."""
        found: list[Document] = []
        looked_at = size = 0
        for number, (after, before) in enumerate(spans):
            if looked_at >= limit or size > READ_CHARACTERS:
                return found, spans[number - 1].before
            left, room = limit - looked_at, READ_CHARACTERS - size
            documents, is_whole = await self._of_span(after, before, left, room, session)
            found += documents
            size += sum(map(layout.weight, documents))
            if not is_whole:
                return found, str(documents[-1]["_id"])
            looked_at += max(1, len(documents))
        return found, None

    async def _of_span(
        self,
        after: str,
        before: str | None,
        limit: int,
        characters: int,
        session: AsyncClientSession | None,
    ) -> tuple[list[Document], bool]:
        """Return documents in the order of their keys, and whether these are all."""
        found: list[Document] = []
        size = 0
        is_whole = True
        keys = {"$gt": after} if before is None else {"$gt": after, "$lt": before}
        cursor = self._link.states.find({"_id": keys}, session=session).sort("_id", 1)
        batch_size = self._read_size.documents(limit, characters)
        async with cursor.limit(limit + 1).batch_size(batch_size):
            async for document in cursor:
                if len(found) == limit or size > characters:
                    is_whole = False
                    break
                found.append(document)
                size += layout.weight(document)
        self._read_size.saw(size, len(found))
        return found, is_whole

    def _state(self, document: Document) -> ObjectState:
        state = layout.state(document, self._link.damage)
        mark = Mark(max(0, offset_of(document)), state.cursor.ms)
        return ObjectState(str(document["_id"]), mark, state.deleted, state.data)
