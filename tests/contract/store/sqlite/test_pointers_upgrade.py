"""Files with pointers that an agent of the version before has written."""

import sqlite3
from pathlib import Path

import pytest

from oplogd.model.names import TopicName
from oplogd.model.pointer import Decision
from oplogd.store.sqlite import MIGRATIONS
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.store.pointing import committed, uncommitted
from tests.kits.store.sqlite_files import create_at_version, direct, opened

BEFORE = [each.name for each in MIGRATIONS].index("late reports")
MS = START_MS << 16

# A topic with a message of each pointer: 7 has timed out, 8 has committed, 9 is open.
CONTENT = f"""
    INSERT INTO topics VALUES (1, 'ns', 't', NULL, 5, {MS + 4}, 0, 0);
    UPDATE catalogue SET last_log = 1;
    INSERT INTO entries VALUES
    ((1 << 40) + 1, {MS}, 'direct', '7 {{"payload":"late"}}', 0),
    ((1 << 40) + 2, {MS + 1}, 'direct', '8 {{"payload":"done"}}', 0),
    ((1 << 40) + 3, {MS + 2}, 'direct', '9 {{"payload":"open"}}', 0),
    ((1 << 40) + 4, {MS + 3}, 'abort', '{{"txn":"7"}}', 0),
    ((1 << 40) + 5, {MS + 4}, 'commit', '{{"txn":"8"}}', 0);
    INSERT INTO pointers VALUES
    (1, 7, 'timed out', {START_MS}, 0, 1, 0, 0, 0, 0, NULL, NULL, 4, {MS + 3}),
    (1, 8, 'committed', {START_MS}, 0, 1, 0, 0, 0, 0, NULL, NULL, 5, {MS + 4}),
    (1, 9, 'open', {START_MS}, {START_MS + 900_000}, 1, 0, 0, 0, 0, NULL, NULL, NULL, NULL);
    INSERT INTO pointer_entries VALUES
    (1, 7, {MS}, (1 << 40) + 1), (1, 8, {MS + 1}, (1 << 40) + 2), (1, 9, {MS + 2}, (1 << 40) + 3);
"""


async def test_what_was_decided_before_the_upgrade_can_be_reported_and_read_after_it(
    path: Path,
) -> None:
    create_at_version(path, BEFORE)
    with direct(path) as db:
        db.executescript(CONTENT)
    async with opened(path, VirtualClock()) as store:
        topic = await store.topics.find(TopicName("ns", "t"))
        assert topic is not None
        (listed,) = await store.pointers.timed_out(1, 10)
        assert listed.pointer == 7
        assert (await committed(store, topic)).payloads == ["done"]
        await store.pointers.decide([1], 7, Decision.COMMITTED)
        await store.pointers.rollback(1, 9, None)
        assert (await committed(store, topic)).payloads == ["done", "late"]
        assert await uncommitted(store, topic) == ["late", "done"]


async def test_an_agent_of_the_version_before_cannot_publish_roll_back_or_sweep_under_pointers(
    path: Path,
) -> None:
    """It has the file open while this one upgrades it."""
    create_at_version(path, BEFORE)
    with direct(path) as older:
        older.executescript(CONTENT)
        async with opened(path):
            for statement in (
                "SELECT place FROM pointer_entries",
                "DELETE FROM pointer_entries WHERE pointer = 9",
                "INSERT OR REPLACE INTO pointers VALUES (1, 9, 'open', 0, 0, 1, 0, 0, 0, 0,"
                " NULL, NULL, NULL, NULL)",
            ):
                with pytest.raises(sqlite3.OperationalError, match=r"no such table|has 16 columns"):
                    older.execute(statement)
            assert older.execute("SELECT count(*) FROM entries").fetchone() == (5,)
