"""The follower shares the event loop with other work."""

import asyncio
from typing import Any

import pytest

from oplogd.model.event_id import Mark
from oplogd.stream.follower import advance, follow
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.waker import Waker
from oplogd.watch.health import Health
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import entry, numbered


class OneBatch:
    """A store with one long batch for ``follow``."""

    def __init__(self, operations: int) -> None:
        self.entries = [
            entry(offset, START_MS, op) for offset, op in enumerate(numbered(operations), 1)
        ]

    async def follow(self, after: int, limit: int, seconds: float, at_ms: int | None = None) -> Any:
        return self.entries[after : after + limit]


class ManyBatches(OneBatch):
    """A store that has the next entry at once in each call of ``follow``."""

    async def follow(self, after: int, limit: int, seconds: float, at_ms: int | None = None) -> Any:
        return self.entries[after : after + 1]


async def test_other_work_runs_between_the_batches_of_a_backlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.follower._WORK_SECONDS", 0.0)
    ring = Ring(Framer().route, 10_000, 10**9, Waker().wake)
    ring.restart(Mark(0, START_MS))
    store: Any = ManyBatches(50)
    following = asyncio.create_task(follow(store, ring, Health()))
    heads = set()
    while ring.head.offset < 50:
        heads.add(ring.head.offset)
        await asyncio.sleep(0)
    following.cancel()
    assert len(heads) == 50


@pytest.mark.parametrize(("piece_bytes", "pieces"), [(10**9, 16), (1, 2000)])
async def test_other_work_runs_between_the_pieces_of_a_long_batch(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, pieces: int
) -> None:
    monkeypatch.setattr("oplogd.stream.follower._WORK_SECONDS", 0.0)
    monkeypatch.setattr("oplogd.stream.follower._PIECE_BYTES", piece_bytes)
    ring = Ring(Framer().route, 10_000, 10**9, Waker().wake)
    ring.restart(Mark(0, START_MS))
    store: Any = OneBatch(2000)
    feeding = asyncio.create_task(advance(store, ring, 0))
    heads = []
    while not feeding.done():
        heads.append(ring.head.offset)
        await asyncio.sleep(0)
    await feeding
    assert ring.head.offset == 2000
    assert len(set(heads)) >= pieces
