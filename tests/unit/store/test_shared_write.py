"""How long steps in one transaction of SQLite hold up other calls of the writer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from oplogd.clock import SYSTEM
from oplogd.clock.guard import GuardedClock
from oplogd.store.sqlite.file import shared_write
from oplogd.store.sqlite.file.connection import StoreFile
from oplogd.store.sqlite.file.pool import ConnectionPool, Pools
from oplogd.store.sqlite.file.shared_write import SharedStep, SharedWriter
from tests.kits.store.held_thread import held_thread, turns


class Bench:
    """A writer whose steps take ``STEP_SECONDS`` each. ``seen``: what its thread did, in order."""

    STEP_SECONDS = 0.002

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool = ConnectionPool(StoreFile(path, lambda *_: None), "test", 1)
        self.seen: list[str] = []
        self.now = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(shared_write, "time", clock)
        pools = Pools(self.pool, self.pool, self.pool)
        self.writer = SharedWriter(pools, lambda: self.seen.append("commit"), GuardedClock(SYSTEM))

    def step(self, name: str) -> "asyncio.Task[None]":
        def work(_: SharedStep) -> None:
            self.seen.append(name)
            self.now += self.STEP_SECONDS

        return asyncio.create_task(self.writer._run(work))

    def other(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.pool.run(lambda _: self.seen.append("other")))


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "test.db", monkeypatch)
    yield made
    await made.pool.close()


@pytest.mark.parametrize(
    ("is_wanted", "expected"),
    [
        (False, "a b c d e f commit g commit"),
        (True, "a b commit other c d e f g commit"),
    ],
)
async def test_steps_end_soon_only_for_a_call_that_waits(
    bench: Bench, is_wanted: bool, expected: str
) -> None:
    others = []
    async with held_thread(bench.pool):
        steps = [bench.step(name) for name in "abcdefg"]
        await turns()
        if is_wanted:
            others = [bench.other()]
    await asyncio.gather(*steps, *others)
    assert " ".join(bench.seen) == expected
