from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from oplog_relay.db import DatabaseOutbox
from tests.kits.relay.places import Kind, Place
from tests.kits.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each of the databases."""
    found: Kind = request.param
    return found


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: Kind) -> PostgresServer | None:
    """The server of the database. Tests that kill it replace this fixture."""
    return request.getfixturevalue("postgres") if kind == "postgres" else None


@pytest.fixture
def place(kind: Kind, server: PostgresServer | None, tmp_path: Path) -> Place:
    """Return a new database with the default table."""
    made = Place(kind, tmp_path, server)
    made.create()
    return made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let statements wait for a lock for longer than the test runs."""
    monkeypatch.setattr("oplog_relay.db.postgres.outbox.LOCK_TIMEOUT", "1min")


@pytest_asyncio.fixture
async def outbox(place: Place) -> AsyncIterator[DatabaseOutbox]:
    made = place.open()
    yield made
    await made.dispose()
