"""Waits for news of topics, in a thread of its own."""

import sqlite3
import threading
import time
from collections.abc import Mapping

import msgspec

from oplogd.store.sqlite.file.connection import snapshot
from oplogd.store.sqlite.file.parts import as_json
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
    """``wake`` and ``close`` may be called from any thread, ``wait`` from one."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._closing = False

    def wake(self) -> None:
        """Look for news now: this process has appended or changed something."""
        self._woken.set()

    def close(self) -> None:
        """End the present call of ``wait`` and all later ones."""
        self._closing = True
        self._woken.set()

    def wait(
        self,
        db: sqlite3.Connection,
        heads: Mapping[int, int],
        known: int | None,
        turn: int,
        seconds: float,
        ended: threading.Event,
    ) -> tuple[News, int]:
        """Do ``Topics.news``: wait for entries, or until the version is not the known one.

        ``turn``: the newest change of a front by a bound in bytes that is known. Also return the
        present one. Return at the next ``wake`` after ``ended`` was set.
        """
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
                    gone = db.execute(GONE_SINCE, (turn,)).fetchall()
                floors = {log: offset for log, offset, _ in gone if log in heads}
            left = deadline - time.monotonic()
            has_news = logs or floors or version != known
            if has_news or left <= 0 or self._closing or ended.is_set():
                return News(logs, version, floors), max([turn, *(each for _, _, each in gone)])
            self._woken.wait(min(POLL_SECONDS, left))
