"""A relay at its start, with the bindings that its settings name."""

from pathlib import Path

import pytest

from oplog_relay import (
    AgentSettings,
    ConfigError,
    DatabaseSettings,
    Limits,
    Relay,
    RelaySettings,
    State,
)
from tests.kits.relay.places import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place("sqlite", tmp_path, None)
    place.create()
    return place


def _relay(url: str, limits: Limits | None = None) -> Relay:
    agents = AgentSettings(("http://127.0.0.1:9",))
    return Relay(RelaySettings("orders", DatabaseSettings(url), agents, limits or Limits()))


async def test_a_table_that_does_not_fit_stops_the_start(place: Place) -> None:
    place.run("DROP TABLE outbox")
    relay = _relay(place.url)
    with pytest.raises(ConfigError, match='the database has no table "outbox"'):
        await relay.start()
    assert relay.state is State.STOPPED
    with pytest.raises(ConfigError, match='the database has no table "outbox"'):
        await relay.wait()
    await relay.stop()


async def test_settings_made_in_code_obey_the_rules_of_the_file(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"limits\.mark: must be at most in_flight"):
        await _relay(place.url, Limits(mark=500, in_flight=100)).start()


async def test_a_database_that_is_away_does_not_stop_the_start() -> None:
    relay = _relay("postgresql://nobody@127.0.0.1:9/none")
    await relay.start()
    assert relay.state is State.RUNNING
    await relay.stop()
    await relay.wait()


async def test_a_relay_starts_once(place: Place) -> None:
    relay = _relay(place.url)
    await relay.start()
    with pytest.raises(RuntimeError, match="starts once"):
        await relay.start()
    await relay.stop()
