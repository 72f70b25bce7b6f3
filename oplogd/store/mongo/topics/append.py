"""The conditional append to topics: one insert carries entries of many logs.

See ``inserts`` and ``judgement``. Plain batches have one condition: the topic still exists. A
deletion appends an entry, so the heads tell the judgement. A batch may also have a fence.

After a broken connection an insert is repeated: the entries in its places tell which ones have
landed. They carry the writer's token and number, and the repetition has the same places, so none
lands twice. The rest is judged again.

If the term of a fence ends before all of its batch is in the log, the rest is refused. If a part of
it is in the log, or may still land because an answer was lost, the append raises: the answer must
not claim that nothing was stored.
"""

import secrets
from collections.abc import Mapping, Sequence

from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError

from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.fences import ended_meanwhile, holding
from oplogd.store.mongo.link.inserts import Obstacle, insert_until_taken
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import END, floor_of, parts
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.groups import Attempt, Group, Numbered, entry_document, new_entry
from oplogd.store.mongo.topics.heads import Heads, LogHead, TopicHeads
from oplogd.store.mongo.topics.judgement import Chunk, entries_of, judge
from oplogd.store.topics import EntryKind, MessageBatch

# Entries in one insert. More of them cost memory and save no time.
_MOST_ENTRIES = 1_000

# Characters of messages in one insert, approximately.
_MOST_CHARACTERS = 8_000_000

# Repetitions of an insert with a lost answer.
_REPETITIONS = 2


class TopicAppender:
    def __init__(self, link: Link, catalogue: Catalogue, heads: TopicHeads) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads
        self._late_seconds = link.timing.late_seconds
        self._writer = secrets.token_hex(8)

    async def append(self, batches: Sequence[MessageBatch]) -> list[Group]:
        """Append batches of messages. Return a group with the outcome for each."""
        groups = [
            Group(
                batch.log,
                [new_entry(EntryKind.MESSAGE, each.data, each.ttl) for each in batch.messages],
                batch.fence,
            )
            for batch in batches
        ]
        await self.run(groups)
        return groups

    async def end(self, log: int, behind: int | None = None) -> Mark | None:
        """Append the last entry of a log. Return its mark, None if the log is gone.

        If the log has ended already, return the mark of its end. ``behind``: only behind an entry
        with this offset; None is returned if another one is there.
        """
        group = Group(log, [new_entry(END)], behind=behind)
        await self.run([group])
        return group.last or group.ended

    async def run(self, groups: Sequence[Group]) -> None:
        """Append the entries of groups in this order. Each group then has its outcome."""
        obstacles: dict[int, Obstacle] = {}
        doubtful: dict[str, Attempt] = {}
        doubtful_since = 0.0
        repetitions = 0
        while todo := [group for group in groups if group.todo]:
            heads = await self._heads.newest({group.log for group in self._chunk(todo)})
            for log, head in heads.logs.items():
                if log in obstacles:
                    obstacles[log].compare(head.mark.offset)
            if doubtful:
                await self._look_for(doubtful, doubtful_since)
            attempts = await self._judge(self._chunk(todo), heads, doubtful)
            if not attempts:
                continue
            try:
                landing = await insert_until_taken(
                    self._link,
                    self._link.entries,
                    [entry_document(each, self._writer) for each in attempts],
                    heads.asked,
                    self._late_seconds,
                    self._late_seconds,
                )
            except ServerSelectionTimeoutError:
                raise
            except AutoReconnect:
                repetitions += 1
                if repetitions > _REPETITIONS:
                    raise
                doubtful_since = doubtful_since or heads.asked.at
                doubtful |= {each.key: each for each in attempts}
                continue
            landed = attempts[: landing.number]
            await self._placed(landed, heads.asked.at, is_late=landing.is_late)
            if landing.number < len(attempts):
                beaten = attempts[landing.number]
                obstacle = obstacles.setdefault(beaten.group.log, Obstacle(self._link))
                await obstacle.met(beaten.mark.offset)

    def _chunk(self, todo: Sequence[Group]) -> dict[Group, list[Numbered]]:
        """Return the first entries for one insert, by group."""
        entries = min(_MOST_ENTRIES, self._link.quirks.inserts_per_command)
        characters = _MOST_CHARACTERS
        chunk: dict[Group, list[Numbered]] = {}
        for group in todo:
            for entry in group.todo:
                characters -= len(entry.data)
                if not entries or (chunk and characters < 0):
                    return chunk
                entries -= 1
                chunk.setdefault(group, []).append(entry)
        return chunk

    async def _judge(
        self, chunk: Chunk, heads: Heads, doubtful: Mapping[str, Attempt]
    ) -> list[Attempt]:
        conditions = [
            entry.once for entries in chunk.values() for entry in entries if entry.once is not None
        ]
        others = [group.unless for group in chunk if group.unless is not None]
        known = await entries_of(self._link, conditions, others)
        held = await holding(self._link, {each.fence for each in chunk if each.fence is not None})
        attempts = judge(chunk, heads, await self._link.now_ms(), known, held)
        in_doubt = {each.group for each in doubtful.values()}
        for group in chunk:
            is_begun = group.first is not None or group in in_doubt
            if group.fence is not None and group.is_stale and is_begun:
                raise ended_meanwhile(self._link, group.fence)
        return attempts

    async def _placed(self, landed: Sequence[Attempt], asked_at: float, *, is_late: bool) -> None:
        """Note the entries that landed behind heads asked for at a time.

        Remove late ones at places swept before.
        """
        strays = await self._strays(landed) if is_late else {}
        for each in landed:
            if each.key not in strays:
                each.group.place(each.entry, each.mark)
        if strays:
            await self._link.entries.delete_many({"_id": {"$in": list(strays)}})
            for each in strays.values():
                self._heads.forget(each.group.log)
            return
        for each in landed:
            self._heads.saw(each.group.log, LogHead(each.mark), asked_at)
        if landed:
            self._heads.appended.notify()

    async def _strays(self, landed: Sequence[Attempt]) -> dict[str, Attempt]:
        """Return the entries at or below the floor of their log. No reader sees them.

        A sweep raises the floor before it removes entries.
        """
        floors: dict[int, int] = {}
        for log in {each.group.log for each in landed}:
            document = await self._catalogue.of_log(log)
            if document is not None:
                floors[log] = floor_of(document).offset
        return {
            each.key: each
            for each in landed
            if each.mark.offset <= floors.get(each.group.log, each.mark.offset)
        }

    async def _look_for(self, doubtful: Mapping[str, Attempt], since: float) -> None:
        """Note the entries stored although the answer was lost.

        ``since``: time by the clock before the first of these inserts.
        """
        landed: list[Attempt] = []
        for keys in parts(doubtful):
            found = self._link.entries.find({"_id": {"$in": keys}}, {"w": 1, "s": 1})
            own = {each["_id"]: each["s"] async for each in found if each.get("w") == self._writer}
            landed += [
                attempt
                for key in keys
                for attempt in [doubtful[key]]
                if own.get(key) == attempt.entry.number and attempt.entry in attempt.group.todo
            ]
        is_late = self._link.clock.boot() - since > self._late_seconds
        await self._placed(landed, since, is_late=is_late)
