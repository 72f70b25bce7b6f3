from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oplogd.store import Store
from oplogd.store.topics import Topics
from tests.contract.store.memory_store import memory_kits
from tests.kits.servers.stores import skip_fsync
from tests.kits.store.kits import KITS, LARGE, TRIMMING, Kit, Kits, MakeKits
from tests.kits.store.transacting import StoreHandle
from tests.kits.store.workers import worker_kits

# Stores of the tests of transactions, and the model that they are compared with. Topics,
# transactions and pointers lie beside the log of the oplog, so its kind makes no difference to
# them: only some of their tests, for the other server, take the slow stand-in with capped
# collections (EVERY in transacting.py, KITS).
TRANSACTION_KITS: dict[str, MakeKits] = {
    "memory": memory_kits,
    "sqlite-workers": worker_kits,
    **KITS,
}
TOPIC_KITS: dict[str, MakeKits] = {"sqlite-workers": worker_kits, **KITS}


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


@pytest.fixture(params=["sqlite-workers", *LARGE])
def topic_kits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kits:
    return TOPIC_KITS[request.param](request, monkeypatch)


@pytest.fixture
async def topic_kit(topic_kits: Kits) -> AsyncIterator[Kit]:
    async with topic_kits() as kit:
        yield kit


@pytest.fixture
async def topics(topic_kit: Kit) -> Topics:
    return (await topic_kit.open()).topics


@pytest.fixture(params=[name for name in TRANSACTION_KITS if name != "mongo-capped"])
def txn_kits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kits:
    return TRANSACTION_KITS[request.param](request, monkeypatch)


@pytest.fixture
async def txn_kit(txn_kits: Kits) -> AsyncIterator[Kit]:
    async with txn_kits() as kit:
        yield kit


@pytest.fixture
async def txn_store(txn_kit: Kit) -> StoreHandle:
    return await txn_kit.open()


@pytest.fixture
async def lease_store(txn_kit: Kit) -> Store:
    return await txn_kit.open()


@pytest.fixture(params=TOPIC_KITS)
async def consumer_kit(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Kit]:
    async with TOPIC_KITS[request.param](request, monkeypatch)() as kit:
        yield kit


@pytest.fixture
async def consumer_store(consumer_kit: Kit) -> Store:
    return await consumer_kit.open()


@pytest.fixture
async def store(kit: Kit) -> Store:
    return await kit.open()


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_fsync(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a SQLite store that does not exist yet."""
    return tmp_path / "oplog.db"
