"""Look-ups of SQLite that wait for a thread together become one, and none sees too little."""

import asyncio
import gc
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oplogd.errors import StoreUnavailableError, TopicNotFoundError
from oplogd.store.sqlite.file.connection import StoreFile
from oplogd.store.sqlite.file.pool import ConnectionPool
from tests.kits.store.held_thread import held_thread, turns


class Bench:
    """A pool of one thread. ``value`` is what a look-up finds, ``looks`` are their keys."""

    def __init__(self, path: Path) -> None:
        self.pool = ConnectionPool(StoreFile(path, lambda *_: None), "test", 1)
        self.value = 0
        self.looks: list[str] = []
        self.is_broken = False

    def ask(self, key: str = "a") -> "asyncio.Task[int]":
        return asyncio.create_task(self.pool.run_shared(key, lambda _: self._look(key)))

    def _look(self, key: str) -> int:
        self.looks.append(key)
        if self.is_broken:
            raise TopicNotFoundError("gone")
        return self.value


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "test.db")
    yield made
    await made.pool.close()


async def test_calls_of_a_key_that_wait_become_one(bench: Bench) -> None:
    async with held_thread(bench.pool):
        asked = [bench.ask(key) for key in "aabab"]
        await turns()
        bench.value = 7
    assert await asyncio.gather(*asked) == [7] * 5
    assert sorted(bench.looks) == ["a", "b"]


async def test_a_call_after_the_begin_of_another_looks_again(bench: Bench) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def look(_: sqlite3.Connection) -> int:
        found = bench.value
        begun.set()
        may_end.wait()
        return found

    first = asyncio.create_task(bench.pool.run_shared("a", look))
    await asyncio.to_thread(begun.wait)
    bench.value = 1
    second, third = bench.ask(), bench.ask()
    await turns()
    may_end.set()
    assert [await each for each in (first, second, third)] == [0, 1, 1]
    assert bench.looks == ["a"]


async def test_a_caller_that_goes_takes_nothing_from_the_others(bench: Bench) -> None:
    async with held_thread(bench.pool):
        asked = [bench.ask() for _ in range(3)]
        await turns()
        asked[0].cancel()
    assert await asyncio.gather(*asked[1:]) == [0, 0]
    assert asked[0].cancelled()


async def test_an_error_reaches_all_and_nothing_of_it_stays(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with held_thread(bench.pool):
        asked = [bench.ask() for _ in range(3)]
        await turns()
        asked[0].cancel()
        bench.is_broken = True
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in found[1:]] == [TopicNotFoundError] * 2
    bench.is_broken = False
    assert await bench.ask() == 0
    assert bench.looks == ["a", "a"]
    assert caplog.records == []


async def test_an_error_that_nobody_waits_for_is_not_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with held_thread(bench.pool):
        asked = bench.ask()
        await turns()
        asked.cancel()
        bench.is_broken = True
    with pytest.raises(TopicNotFoundError):
        await bench.ask("b")
    gc.collect()
    assert bench.looks == ["a", "b"]
    assert caplog.records == []


@pytest.mark.parametrize("is_lost", [True, False], ids=["failed", "replaced"])
async def test_a_call_while_another_connects_looks_for_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    connect = StoreFile.connect

    def slow(file: StoreFile, pragmas: str) -> Any:
        if begun.is_set():
            return connect(file, pragmas)
        begun.set()
        may_end.wait()
        if is_lost:
            raise sqlite3.OperationalError("the file is away")
        return connect(file, pragmas)

    monkeypatch.setattr(StoreFile, "connect", slow)
    first = bench.ask()
    await asyncio.to_thread(begun.wait)
    second = bench.ask()
    await turns()
    may_end.set()
    found = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnavailableError if is_lost else int, int]
    assert bench.looks == ["a"] * (1 if is_lost else 2)


async def test_a_pool_that_closes_answers_all_who_wait(bench: Bench) -> None:
    async with held_thread(bench.pool):
        asked = [bench.ask() for _ in range(2)]
        await turns()
        closing = asyncio.create_task(bench.pool.close())
    await closing
    found = await asyncio.gather(*asked, bench.ask(), return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnavailableError] * 3
    assert bench.pool._shared == {}
