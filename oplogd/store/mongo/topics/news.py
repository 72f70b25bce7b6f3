"""Waiting for new entries in any of many logs, of any agent."""

import asyncio
import itertools
import time
from collections.abc import Collection, Mapping

from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import wait
from oplogd.store.mongo.link.topic_layout import place
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.heads import TopicHeads
from oplogd.store.topics import News

# Time between two look-ups. The second one without logs, and on servers without quick look-ups.
_PACE_SECONDS = 0.02
_SLOW_PACE_SECONDS = 0.25

# Look-ups use at most a sixth of the time.
_PACE_SHARE = 5

# A log is active for so long after its last news.
_ACTIVE_SECONDS = 60.0

# Other logs in one look-up.
_IDLE_LOGS = 500


class NewsWatcher:
    """Asks for the next place of each log."""

    def __init__(self, link: Link, catalogue: Catalogue, heads: TopicHeads) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads
        self._version: int | None = None
        # Floors raised by bounds in bytes, as of the last call.
        self._floors = 0
        self._active: dict[int, float] = {}
        # The last idle log asked for.
        self._turn = 0
        # Logs present when a call first named them, and the others.
        self._present: set[int] = set()
        self._gone: set[int] = set()
        self._asked_at = float("-inf")

    async def news(self, heads: Mapping[int, int], seconds: float) -> News:
        give_up_at = time.monotonic() + seconds
        while True:
            await self._check_presence(heads)
            appended = self._heads.appended.listen()
            changed = self._catalogue.changed.listen()
            began = time.monotonic()
            asked = self._asked(heads, began)
            past, (version, turn) = await asyncio.gather(
                self._past(heads, asked), self._catalogue.version()
            )
            floors: Mapping[int, int] = {}
            if turn != self._floors and heads:
                floors = await self._catalogue.floors(heads.keys())
            logs = {*past, *self._gone}
            now = time.monotonic()
            before, self._version = self._version, version
            self._active |= dict.fromkeys(logs, now)
            if logs or floors or before not in (None, version) or now >= give_up_at:
                if heads:
                    self._floors = turn
                return News(logs, version, floors)
            # Without waiting tails, a look reads the whole collection.
            is_quick = heads and self._link.quirks.awaits_tail
            pace = _PACE_SECONDS if is_quick else _SLOW_PACE_SECONDS
            pause = min(max(pace, _PACE_SHARE * (now - began)), give_up_at - now)
            await _either(appended, changed, pause)

    async def _check_presence(self, heads: Mapping[int, int]) -> None:
        """Look up which of the logs exist, if they are new here or the last call was long ago.

        Later the end of a log shows that its topic was deleted. The end stays for a while.
        """
        now = time.monotonic()
        if now - self._asked_at > _ACTIVE_SECONDS:
            self._present.clear()
        self._asked_at = now
        self._present &= heads.keys()
        self._gone &= heads.keys()
        if new := heads.keys() - self._present - self._gone:
            present = (await self._catalogue.current(new)).keys()
            self._present |= present
            self._gone |= new - present

    def _asked(self, heads: Mapping[int, int], now: float) -> list[int]:
        """Return the logs to ask for: the active ones, and some of the others in turn."""
        self._active = {
            log: at
            for log, at in self._active.items()
            if log in heads and now - at <= _ACTIVE_SECONDS
        }
        if len(heads) <= _IDLE_LOGS:
            return list(heads.keys() - self._gone)
        idle = sorted(heads.keys() - self._active.keys() - self._gone)
        turned = itertools.chain(
            (log for log in idle if log > self._turn), (log for log in idle if log <= self._turn)
        )
        chosen = list(itertools.islice(turned, _IDLE_LOGS))
        self._turn = chosen[-1] if chosen else 0
        return [*self._active, *chosen]

    async def _past(self, heads: Mapping[int, int], logs: Collection[int]) -> list[int]:
        """Return the logs with the entry after their offset."""
        if not logs:
            return []
        keys = {place(log, heads[log] + 1): log for log in logs}
        found = self._link.entries.find({"_id": {"$in": list(keys)}}, {"_id": 1})
        documents = await found.batch_size(len(keys) + 1).to_list()
        return [keys[each["_id"]] for each in documents]


async def _either(first: asyncio.Event, second: asyncio.Event, seconds: float) -> None:
    """Wait until one of two events is set, at most ``seconds``."""
    waiting = [asyncio.ensure_future(wait(event, seconds)) for event in (first, second)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
