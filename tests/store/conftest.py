from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oplogd.store import Store
from oplogd.store.topics import Topics
from tests.store.kits import KITS, TRIMMING, Kit, Kits


@pytest.fixture(params=KITS)
def kits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kits:
    return KITS[request.param](request, monkeypatch)


@pytest.fixture(params=TRIMMING)
def trimming_kits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kits:
    return KITS[request.param](request, monkeypatch)


@pytest.fixture
async def kit(kits: Kits) -> AsyncIterator[Kit]:
    async with kits() as kit:
        yield kit


@pytest.fixture
async def trimming_kit(trimming_kits: Kits) -> AsyncIterator[Kit]:
    async with trimming_kits() as kit:
        yield kit


@pytest.fixture(params=KITS)
def topic_kits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kits:
    return KITS[request.param](request, monkeypatch)


@pytest.fixture
async def topic_kit(topic_kits: Kits) -> AsyncIterator[Kit]:
    async with topic_kits() as kit:
        yield kit


@pytest.fixture
async def topics(topic_kit: Kit) -> Topics:
    return (await topic_kit.open()).topics


@pytest.fixture
async def store(kit: Kit) -> Store:
    return await kit.open()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a SQLite store that does not exist yet."""
    return tmp_path / "oplog.db"
