"""New entries reach the follower without a read of the file, and are those of the file."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oplogd.clock import Clock
from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.model.operation import decode
from oplogd.store.base import Entry
from oplogd.store.corrections import Correction, CorrectionResult
from oplogd.store.sqlite import SqliteStore
from oplogd.store.sqlite.file import parts
from oplogd.store.sqlite.log import hand_over, log
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import log_of
from tests.kits.store.sqlite_files import made_at, opened, put_in_place

# Characters that JSON, UTF-8 or the lines of a read could change.
_CHARACTERS = 'aé€😀"\\/ \n\u2028\x7f'
TIME = "2026-11-29T10:00:00.000Z"


class Follower:
    """Follows the log of a store and counts the reads of the file."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.entries: list[Entry] = []
        self.reads = 0
        read = log.read

        def counted(*given: object) -> list[Entry]:
            self.reads += 1
            return read(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(log, "read", counted)
        monkeypatch.setattr(hand_over, "POLL_SECONDS", 3600.0)

    async def begin(self) -> None:
        """Read the file to its end: from now on only others' entries need a read."""
        (bounds, entries) = await self.store.locate(), await log_of(self.store)
        self.entries = entries
        self._mark = (bounds.head.offset, bounds.head.ms)
        assert await self.store.follow(*self.given(0)) == []
        self.reads = 0

    async def upto(self, offset: int, limit: int = 2000) -> None:
        while self._mark[0] < offset:
            async with asyncio.timeout(DEADLINE):
                found = await self.store.follow(*self.given(DEADLINE, limit))
            assert 0 < len(found) <= limit
            self.entries += found
            self._mark = (found[-1].offset, found[-1].ms)

    def given(self, seconds: float, limit: int = 2000) -> tuple[int, int, float, int]:
        return self._mark[0], limit, seconds, self._mark[1]


def _an_hour_ago(append: Callable[..., Any]) -> Callable[..., Any]:
    def earlier(db: Any, operations: Any, clock: Clock) -> Any:
        return append(db, operations, replace(clock, now_ms=lambda: clock.now_ms() - 3_600_000))

    return earlier


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def follower(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Follower]:
    """Return the follower of a log with one entry. It reads only if it has to."""
    async with opened(path, clock) as store:
        await store.append(numbered(1))
        found = Follower(store, monkeypatch)
        await found.begin()
        yield found


async def test_own_entries_are_followed_without_a_read(
    follower: Follower, clock: VirtualClock
) -> None:
    store = follower.store
    for batch in range(20):
        clock.move(0.001 * (batch % 3))
        await store.append(numbered(1 + batch, first=100 * batch))
        await follower.upto(1 + (batch + 1) * (batch + 2) // 2)
    assert follower.reads == 0
    assert follower.entries == await log_of(store)


async def test_own_entries_wake_a_waiting_follower(follower: Follower) -> None:
    store = follower.store
    following = asyncio.create_task(follower.upto(3))
    await asyncio.sleep(0)  # it waits
    await store.append(numbered(2, first=2))
    await following
    assert follower.reads == 0


async def test_corrections_wake_a_waiting_follower(follower: Follower) -> None:
    store = follower.store
    following = asyncio.create_task(follower.upto(2))
    await asyncio.sleep(0)
    assert await store.correct([Correction(numbered(1, first=2)[0], None)]) == [
        CorrectionResult.APPLIED
    ]
    await following


async def test_a_close_ends_a_waiting_follower(follower: Follower) -> None:
    store = follower.store
    following = asyncio.create_task(store.follow(*follower.given(3600)))
    await asyncio.sleep(0)
    await store.close()
    assert await following == []


async def test_entries_have_the_times_of_the_log_when_the_clock_is_set_back(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = follower.store
    for first in (2, 5, 8):
        monkeypatch.setattr(log, "append", _an_hour_ago(log.append))
        await store.append(numbered(3, first))
    await follower.upto(10)
    assert follower.reads == 0
    assert follower.entries == await log_of(store)


async def test_entries_of_a_file_that_was_moved_away_meanwhile_are_not_handed_over(
    path: Path, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = log.append

    def moved(*given: Any) -> Any:
        found = append(*given)
        put_in_place(tmp_path / "aside.db", path)
        return found

    async with opened(path, clock) as store:
        await store.append(numbered(1))
        head = (await store.locate()).head
        with monkeypatch.context() as patch:
            patch.setattr(log, "append", moved)
            with pytest.raises(StoreUnavailableError, match="moved away"):
                await store.append(numbered(1, first=2))
        with pytest.raises(StoreUnavailableError, match="the file is gone"):
            await store.follow(head.offset, 10, 0, head.ms)


async def test_entries_are_cut_at_the_limit(follower: Follower) -> None:
    count = parts.STATEMENT_OPERATIONS + 7
    store = follower.store
    await store.append(numbered(count, first=2))
    await follower.upto(1 + count, limit=1000)
    assert follower.reads == 0
    assert follower.entries == await log_of(store)


async def test_entries_of_others_between_own_ones_are_read_in_their_order(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, clock) as store, opened(path, clock) as other:
        await store.append(numbered(1))
        follower = Follower(store, monkeypatch)
        await follower.begin()
        for first in range(10, 60, 10):
            await other.append(numbered(2, first))
            await store.append(numbered(3, first + 2))
        await follower.upto(1 + 5 * 5)
        assert follower.reads
        await store.append(numbered(1, 90))
        await follower.upto(27)
        assert follower.entries == await log_of(store)


async def test_a_follower_does_not_continue_in_another_file_of_the_same_length(
    path: Path, clock: VirtualClock, tmp_path: Path
) -> None:
    aside = tmp_path / "aside.db"
    await made_at(aside, numbered(3))
    async with opened(path, clock) as store:
        await store.append(numbered(3))
        head = (await store.locate()).head
        put_in_place(path, aside)
        await store.append(numbered(1, first=4))
        assert (await store.locate()).head.offset == head.offset + 1
        with pytest.raises(LogReplacedError):
            await store.follow(head.offset, 10, DEADLINE, head.ms)


async def test_a_slow_follower_reads_what_is_too_much_to_keep(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.sqlite.log.hand_over.MOST_CHARACTERS", 10_000)
    store = follower.store
    for first in range(2, 202, 10):
        await store.append(numbered(10, first))
    await follower.upto(201)
    assert follower.reads
    assert follower.entries == await log_of(store)


async def test_entries_are_those_of_the_file(path: Path) -> None:
    made = [
        decode(msgspec.json.encode({"event": "update", "type": "video", "id": id_, **more}), TIME)
        for id_ in map("".join, product(_CHARACTERS, repeat=2))
        for more in ({}, {"parents": [id_, "x"]}, {"timestamp": "2014-11-06T11:04:39+02:00"})
    ]
    async with opened(path) as store:
        await store.append(numbered(1))
        head = (await store.locate()).head
        await store.append(made)
        handed = await store.follow(head.offset, len(made), 0, head.ms)
        assert handed == await store.read(head.offset, len(made))
        assert len(handed) == len(made)
