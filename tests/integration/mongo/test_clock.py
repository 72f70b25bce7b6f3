"""The server's clock dates the entries, so an agent's own clock may be wrong."""

import pytest

from oplogd.agent import Agent
from oplogd.clock import SYSTEM, Clock, now_ms
from oplogd.event_id import Millis
from oplogd.settings import parse
from oplogd.store.mongo import MongoStore
from oplogd.stream.start import Since, resolve
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op, whole_log

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
WARNING = "ahead of the clock"


async def start_an_agent(store: MongoStore, clock: Clock) -> None:
    agent = Agent(parse([], {}), store, [], clock)
    await agent.start()
    await agent.drain()
    await agent.stop()


@pytest.mark.parametrize("wrong_by", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])
async def test_an_agents_wrong_clock_neither_dates_entries_nor_warns(
    plain_url: str,
    make_store: MakeStore,
    caplog: pytest.LogCaptureFixture,
    wrong_by: int,
) -> None:
    wrong = Clock(now_ms=lambda: now_ms() + wrong_by)
    store = make_store(plain_url, "plain", clock=wrong)
    await store.open()
    began = (await store.locate()).now_ms
    assert abs(began - now_ms()) < MINUTE_MS
    await store.append([op("a"), op("b", "delete")])
    await start_an_agent(store, wrong)
    assert WARNING not in caplog.text
    bounds = await store.locate()
    assert [
        entry.ms >= began and entry.ms <= bounds.now_ms for entry in await whole_log(store)
    ] == [True, True]
    assert resolve(Millis(bounds.now_ms), bounds, bounds.now_ms) == Since(bounds.now_ms)


async def test_a_log_ahead_of_the_servers_clock_is_named_at_the_start(
    plain_url: str,
    make_store: MakeStore,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock.move(3600)
    store = make_store(plain_url, "plain")
    await store.open()
    await store.append([op("a")])
    clock.move(-3600)
    await start_an_agent(store, SYSTEM)
    assert WARNING in caplog.text
    assert "--new-epoch" in caplog.text
