"""The server's clock dates the entries, so an agent's own clock may be wrong."""

import time

import pytest

from oplogd.agent import Agent
from oplogd.event_id import Millis
from oplogd.settings import parse
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link import Link
from oplogd.stream.start import Since, resolve
from tests.mongo.conftest import MakeStore
from tests.mongo.operations import op, whole_log

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
WARNING = "ahead of the clock"


async def start_an_agent(store: MongoStore) -> None:
    agent = Agent(parse([], {}), store, [])
    await agent.start()
    await agent.drain()
    await agent.stop()


@pytest.mark.parametrize("wrong_by", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])
async def test_an_agents_wrong_clock_neither_dates_entries_nor_warns(
    plain_url: str,
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong_by: int,
) -> None:
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + wrong_by * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: right() / 1e9 + wrong_by / 1000)
    store = make_store(plain_url, "plain")
    await store.open()
    began = (await store.locate()).now_ms
    assert abs(began - right() // 1_000_000) < MINUTE_MS
    await store.append([op("a"), op("b", "delete")])
    await start_an_agent(store)
    assert WARNING not in caplog.text
    bounds = await store.locate()
    assert [
        entry.ms >= began and entry.ms <= bounds.now_ms for entry in await whole_log(store)
    ] == [True, True]
    assert resolve(Millis(bounds.now_ms), bounds, bounds.now_ms) == Since(bounds.now_ms)


async def test_a_log_ahead_of_the_servers_clock_is_named_at_the_start(
    plain_url: str,
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = make_store(plain_url, "plain")
    await store.open()
    now_ms = Link.now_ms

    async def ahead(link: Link) -> int:
        return await now_ms(link) + HOUR_MS

    with monkeypatch.context() as patch:
        patch.setattr(Link, "now_ms", ahead)
        await store.append([op("a")])
    await start_an_agent(store)
    assert WARNING in caplog.text
    assert "--new-epoch" in caplog.text
