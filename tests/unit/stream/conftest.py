"""The world in which a test of the stream plays."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kits.stream.topic_worlds import TopicWorld
from tests.kits.stream.worlds import ROOMY, Sizes, WatchedConsumer, World
from tests.unit.stream.pointers.pointer_worlds import PointerWorld


@pytest.fixture
def sizes() -> Sizes:
    return ROOMY


@pytest.fixture
async def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Sizes
) -> AsyncIterator[World]:
    world = World(tmp_path, sizes, monkeypatch)
    await world.start()
    yield world
    await world.stop()


@pytest.fixture
async def topic_world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TopicWorld]:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    world = TopicWorld()
    yield world
    await world.close()


@pytest.fixture
async def held_world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PointerWorld]:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    world = PointerWorld()
    yield world
    await world.close()
