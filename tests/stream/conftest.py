"""The world in which a test of the stream plays."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.stream.worlds import ROOMY, Sizes, World


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
