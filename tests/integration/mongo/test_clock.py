"""The server's clock dates the entries, so an agent's own clock may be wrong."""

import dataclasses

import pytest

from oplogd.agent import Agent
from oplogd.clock import SYSTEM, Clock, now_ms
from oplogd.config.command import parse
from oplogd.model.event_id import Millis
from oplogd.store.mongo import MongoStore
from oplogd.stream.phases.start import Since, resolve
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op, whole_log
from tests.kits.store.messages import NAME, publish

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
WARNING = "ahead of the clock"


async def start_an_agent(store: MongoStore, clock: Clock) -> None:
    agent = Agent(parse([], {}), store, [], clock)
    await agent.start()
    await agent.shut()
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
    await store.close()
    clock.jump(-3600)
    store = make_store(plain_url, "plain")
    await store.open()
    await start_an_agent(store, SYSTEM)
    assert WARNING in caplog.text
    assert "--new-epoch" in caplog.text


async def test_only_a_prompt_answer_tells_the_time(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    store = make_store(plain_url, "plain", clock=Clock(boot=clock.boot))
    await store.open()
    began = await store.link.raw_ms()
    late = {"localTime": began - HOUR_MS}
    asked_at = clock.boot()
    clock.move(3)
    await store.link._learn(late, asked_at)
    assert await store.link.raw_ms() == began + 3000
    await store.link._learn(late, clock.boot())
    assert await store.link.raw_ms() == began - HOUR_MS
    assert await store.link.now_ms() == began + 3000
    step = store.clock.step()
    assert step is not None
    assert (step.waiting, step.seconds) == (("times", "removals"), -3603)


async def test_an_agent_on_a_machine_that_slept_takes_over_the_time_of_the_others(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    slept = 0.0
    store = make_store(plain_url, "plain", clock=clock.dates)
    await store.open()
    await store.keep_clock()
    dates = dataclasses.replace(clock.dates, boot=lambda: clock.boot() - slept)
    other = make_store(plain_url, "plain", clock=dates)
    await other.open()
    await other.keep_clock()
    clock.ms += 8 * HOUR_MS
    slept = 8 * 3600.0
    await store.keep_clock()
    assert store.clock.now_ms() == await other.link.now_ms() == clock.ms
    assert other.clock.step() is None
    await other.keep_clock()
    clock.ms += 601_000
    for each in (store, other):
        await each.keep_clock()
        assert each.clock.removal_ms() == clock.ms


async def test_an_agent_that_slept_alone_waits_as_after_any_step(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    slept = 0.0
    dates = dataclasses.replace(clock.dates, boot=lambda: clock.boot() - slept)
    store = make_store(plain_url, "plain", clock=dates)
    await store.open()
    await store.keep_clock()
    began = clock.ms
    clock.ms += 8 * HOUR_MS
    slept = 8 * 3600.0
    assert await store.link.now_ms() == began


async def test_a_topic_that_is_ahead_is_told_after_a_restart_until_the_repair(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    store = make_store(plain_url, "plain", clock=clock.dates)
    await store.open()
    topic = await store.topics.create(NAME, None)
    clock.jump(3600)
    clock.ms += 1
    await store.keep_clock()
    clock.ms += 61_000
    await publish(store.topics, topic, "a")
    clock.jump(-3600)
    assert await store.ahead_ms() == HOUR_MS
    await store.close()
    for repair in (False, True):
        clock.ms += 1000
        store = make_store(plain_url, "plain", clock=clock.dates)
        await store.open()
        if repair:
            await store.new_epoch()
            assert await store.ahead_ms() == 0
            continue
        assert HOUR_MS - 5000 <= await store.ahead_ms() <= HOUR_MS
        await store.close()
