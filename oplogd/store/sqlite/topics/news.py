"""Waits for news of topics, in a thread of its own."""

import sqlite3
import threading
import time
from collections.abc import Mapping

import msgspec

from oplogd.store.sqlite.file.connection import StoreFile, snapshot
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.file.pool import ConnectionPool
from oplogd.store.sqlite.file.statements import SMALL_CACHE
from oplogd.store.sqlite.topics.bound_statements import GONE_SINCE
from oplogd.store.topics import News

# How often the follower looks for entries and changes of other processes.
POLL_SECONDS = 0.05

_VERSION = "SELECT version FROM catalogue"
_DATA_VERSION = "PRAGMA data_version"
_NEWS = """
    SELECT json_group_array(CAST(given.key AS INTEGER)) FROM json_each(?) AS given
    LEFT JOIN topics ON log = CAST(given.key AS INTEGER)
    WHERE name IS NULL OR head > given.value
"""


class Follower:
    """Its thread begins with the first call of ``news``. Any thread may call ``wake``."""

    def __init__(self, file: StoreFile) -> None:
        self._pool = ConnectionPool(file, "store-news", 1, SMALL_CACHE)
        self._woken = threading.Event()
        self._closing = False
        # The known version of the catalogue, and the newest known change of a front by a bound.
        self._version: int | None = None
        self._turn = 0

    def wake(self) -> None:
        """Look for news now: this process has appended or changed something."""
        self._woken.set()

    async def close(self) -> None:
        self._closing = True
        self.wake()
        await self._pool.close()

    async def news(self, heads: Mapping[int, int], seconds: float) -> News:
        ended = threading.Event()
        try:
            news, self._turn = await self._pool.run(
                lambda db: self._wait(db, heads, seconds, ended)
            )
        finally:  # a cancelled wait must not delay the next one
            ended.set()
            self.wake()
        self._version = news.version
        return news

    def _wait(
        self,
        db: sqlite3.Connection,
        heads: Mapping[int, int],
        seconds: float,
        ended: threading.Event,
    ) -> tuple[News, int]:
        """Return the news and the newest change of a front, at the latest when ``ended`` is set."""
        deadline = time.monotonic() + seconds
        given = as_json(heads)
        seen = None
        while True:
            self._woken.clear()
            changes = db.execute(_DATA_VERSION).fetchone()[0]
            if changes != seen:
                seen = changes
                with snapshot(db):
                    logs = msgspec.json.decode(db.execute(_NEWS, (given,)).fetchone()[0])
                    version = db.execute(_VERSION).fetchone()[0]
                    gone = db.execute(GONE_SINCE, (self._turn,)).fetchall()
                floors = {log: offset for log, offset, _ in gone if log in heads}
            left = deadline - time.monotonic()
            has_news = logs or floors or version != self._version
            if has_news or left <= 0 or self._closing or ended.is_set():
                turn = max([self._turn, *(each for _, _, each in gone)])
                return News(logs, version, floors), turn
            self._woken.wait(min(POLL_SECONDS, left))
