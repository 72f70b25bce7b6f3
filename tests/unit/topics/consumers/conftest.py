"""The world of named consumers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kits.stream.worlds import ROOMY, Sizes
from tests.unit.topics.consumers.consumer_worlds import ConsumerWorld


@pytest.fixture
def sizes() -> Sizes:
    return ROOMY


@pytest.fixture
async def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Sizes
) -> AsyncIterator[ConsumerWorld]:
    world = ConsumerWorld(tmp_path, sizes, monkeypatch)
    await world.start()
    yield world
    await world.stop()
