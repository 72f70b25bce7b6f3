"""The follower and a file that another one has replaced."""

from pathlib import Path

import pytest

from oplogd.store.sqlite import SqliteStore
from oplogd.stream.alarm import Alarm
from oplogd.stream.follower import advance
from oplogd.stream.frames import Framer
from oplogd.stream.ring import Ring
from tests.operations import numbered
from tests.stream.worlds import START_MS, Clock


def put_in_place(path: Path, other: Path) -> None:
    """Rename another store over the one at ``path``."""
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    other.rename(path)


async def test_entries_of_another_file_do_not_follow_those_of_the_one_that_was_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other file has an entry at the ring's head, of another time, and goes on behind it."""
    clock = Clock()
    monkeypatch.setattr("oplogd.store.sqlite.log.now_ms", clock)
    other = SqliteStore(tmp_path / "other.db")
    await other.open()
    clock.ms = START_MS + 1
    await other.append(numbered(4))
    head = (await other.locate()).head
    await other.close()

    store = SqliteStore(tmp_path / "oplog.db")
    await store.open()
    clock.ms = START_MS + 2
    await store.append(numbered(2))
    ring = Ring(Framer(), 100, 10**6, Alarm().wake)
    ring.restart((await store.locate()).head)
    epoch = ring.epoch
    put_in_place(tmp_path / "oplog.db", tmp_path / "other.db")
    await advance(store, ring, 0)
    assert (ring.epoch, ring.head, len(ring.window)) == (epoch + 1, head, 0)
    await store.close()
