"""The cost of one call, and the calls that do not wait for each other."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.store import StateCursor, StatesPage
from oplogd.store.sqlite import store as store_module
from oplogd.store.sqlite.file import statements
from oplogd.store.sqlite.log import log
from tests.kits.models.operations import key_of, numbered, operation
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.sqlite_files import opened, steps_of

Patch = pytest.MonkeyPatch


ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


async def test_a_long_count_of_states_delays_neither_the_figures_nor_the_close(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(statements, "STATES_COUNT", ENDLESS)
    async with asyncio.timeout(DEADLINE):
        async with opened(path) as store:
            await store.append(numbered(7))
            asked = await asyncio.gather(*(store.stats() for _ in range(10)))
            assert [stats.states for stats in asked] == [7] * 10
            assert (await store.locate()).head.offset == 7


async def test_a_running_count_leaves_the_last_number_until_it_ends(
    path: Path, monkeypatch: Patch
) -> None:
    goes_on = threading.Event()
    count = store_module._count_states

    def slow(db: sqlite3.Connection) -> object:
        assert goes_on.wait(DEADLINE)
        return count(db)

    async with asyncio.timeout(DEADLINE), opened(path) as store:
        await store.append(numbered(7))
        while (await store.stats()).deleted is None:  # the first count is not over yet
            await asyncio.sleep(0.01)
        assert (await store.stats()).states == 7
        monkeypatch.setattr(store_module, "_count_states", slow)
        monkeypatch.setattr("oplogd.store.cached_count.COUNT_SECONDS", 0.001)
        await store.append(numbered(1, first=8))
        try:
            assert (await store.stats()).states == 7
        finally:
            goes_on.set()
        while (await store.stats()).states != 8:
            await asyncio.sleep(0.01)


async def test_a_page_of_live_states_costs_the_same_however_many_tombstones_are_before_it(
    path: Path,
) -> None:
    async with opened(path) as store:
        await store.append([operation(id_="live")])
        start = StateCursor(0, None)
        few = steps_of(path, lambda db: log.states(db, start, 10**9, live_only=True, limit=500))
        for first in range(0, 20_000, 5000):
            await store.append(
                [operation("delete", id_=str(number)) for number in range(first, first + 5000)]
            )
        await store.append([operation("update", id_="live")])
        page = await store.states(start, 10**9, live_only=True, limit=500)
        assert [key_of(state.data) for state in page.states] == ["video/live"]
        assert page.next is None
        assert (
            steps_of(path, lambda db: log.states(db, start, 10**9, live_only=True, limit=500))
            < 2 * few + 10
        )


async def test_a_page_of_tombstones_costs_the_same_however_many_objects_exist(path: Path) -> None:
    def page(db: sqlite3.Connection) -> StatesPage:
        return log.states(db, StateCursor(0, None), 10**9, 500, live_only=False, deleted_only=True)

    async with opened(path) as store:
        await store.append([operation("delete", id_="gone")])
        few = steps_of(path, page)
        await store.append(numbered(5000))
        await store.append([operation("delete", id_="gone")])
        assert steps_of(path, page) < 2 * few + 10


async def test_a_page_of_states_costs_the_same_however_many_were_changed_after_its_mark(
    path: Path,
) -> None:
    async with opened(path) as store:
        await store.append(numbered(10))
        for live_only in (False, True):
            call = partial(
                log.states, start=StateCursor(0, None), upto=10, live_only=live_only, limit=5
            )
            few = steps_of(path, call)
            await store.append(numbered(5000, first=100))
            assert steps_of(path, call) < 2 * few


@pytest.mark.parametrize("live_only", [False, True])
async def test_a_page_costs_the_same_however_many_states_share_its_millisecond(
    path: Path, live_only: bool
) -> None:
    async with opened(path) as store:
        await store.append(numbered(5000))
        await store.new_epoch()
        first = (
            (await store.states(StateCursor(0, None), 10**9, live_only=live_only, limit=1))
            .states[0]
            .cursor
        )

        def page(after: int) -> Callable[[sqlite3.Connection], object]:
            start = StateCursor(first.ms, after)
            return lambda db: log.states(db, start, 10**9, live_only=live_only, limit=20)

        assert steps_of(path, page(4900)) < 2 * steps_of(path, page(1))


async def test_a_read_touches_no_entries_beyond_its_megabyte(path: Path) -> None:
    async with opened(path) as store:
        await store.append(
            [operation(id_=str(number), parents=["p" * 60_000]) for number in range(100)]
        )
        entries = await store.read(0, 2000)
        assert 1_000_000 < sum(len(entry.data) for entry in entries) < 1_100_000
        states = (await store.states(StateCursor(0, None), 10**9, live_only=True, limit=500)).states
        assert len(states) == len(entries)
        for call in (
            lambda db, limit: log.read(db, 0, limit),
            lambda db, limit: log.states(
                db, StateCursor(0, None), 10**9, live_only=True, limit=limit
            ),
        ):
            least = steps_of(path, partial(call, limit=len(entries)))
            assert steps_of(path, partial(call, limit=2000)) < 1.2 * least


async def test_neither_connects_nor_figures_wait_for_pages_of_states(
    path: Path, monkeypatch: Patch
) -> None:
    goes_on = threading.Event()
    began = threading.Semaphore(0)
    states: Callable[..., StatesPage] = log.states

    def slow(*args: Any, **only: bool) -> StatesPage:
        began.release()
        assert goes_on.wait(DEADLINE)
        return states(*args, **only)

    monkeypatch.setattr(log, "states", slow)
    async with opened(path) as store:
        await store.append(numbered(3))
        calls = [
            asyncio.create_task(store.states(StateCursor(0, None), 3, live_only=True, limit=10))
            for _ in range(20)
        ]
        try:
            assert await asyncio.to_thread(began.acquire, timeout=DEADLINE)
            async with asyncio.timeout(DEADLINE):
                assert (await store.locate()).head.offset == 3
                assert (await store.checkpoint()).offset == 3
                assert (await store.stats()).operations == 3
        finally:
            goes_on.set()
        assert [len((await call).states) for call in calls] == [3] * 20


async def test_closing_does_not_wait_for_queued_calls(path: Path, monkeypatch: Patch) -> None:
    goes_on, began = threading.Event(), threading.Semaphore(0)
    turns = []

    def slow(*_: Any, **only: bool) -> StatesPage:
        turns.append(1)
        began.release()
        assert goes_on.wait(DEADLINE)
        return StatesPage([], None)

    monkeypatch.setattr(log, "states", slow)
    async with opened(path) as store:
        calls = [
            asyncio.create_task(store.states(StateCursor(0, None), 3, live_only=True, limit=10))
            for _ in range(50)
        ]
        for _ in range(3):
            assert await asyncio.to_thread(began.acquire, timeout=DEADLINE)
        closing = asyncio.create_task(store.close())
        await asyncio.wait(calls[3:], timeout=DEADLINE)
        goes_on.set()
        await closing
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert len(turns) == 3
    assert [type(result) for result in results[3:]] == [StoreUnavailableError] * 47
