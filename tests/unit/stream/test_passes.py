"""A stream ends before the pass of its consumer, and when its credential is gone."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.stream.hub import GONE_SPREAD_SECONDS, Hub
from oplogd.stream.passes import FOR_EVER, Pass
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.properties import examples
from tests.kits.stream.worlds import World

TICK = 0.5


@examples()
@given(st.floats(0.1, 1e6), st.floats(0, 1))
def test_a_stream_ends_in_the_last_part_of_a_pass_and_never_after_it(
    life: float, gone: float
) -> None:
    begin = 1_800_000_000.0
    now = begin + life * gone
    left = begin + life - now
    seconds = Pass("key", begin + life, life).seconds(now, TICK)
    early = left - seconds
    assert 0 <= seconds <= left
    if left > 2 * TICK:
        assert early >= 2 * TICK - 1e-6, "it is seen at a look before the end, also at a late one"
        assert early <= max(2 * TICK, min(5.0, life / 10)) + 1e-6


def test_the_ends_of_many_passes_are_spread() -> None:
    ends = [Pass("key", 1_000, 600).seconds(400, TICK) for _ in range(1_000)]
    tenths = {int((600 - end) * 2) for end in ends}
    assert tenths == set(range(2, 10))
    short = [20 - Pass("key", 1_000, 20).seconds(980, TICK) for _ in range(100)]
    assert 1 <= min(short) < max(short) <= 2, "a tenth of its life"
    assert FOR_EVER.seconds(0, TICK) == float("inf")


async def test_streams_end_with_their_passes_also_when_the_time_of_day_jumps(
    world: World,
) -> None:
    clock = VirtualClock()
    hub = hub_of(world, clock)
    now = clock.now_ms() / 1000
    passes = {"short": Pass("a", now + 100, 100), "long": Pass("a", now + 1_000, 1_000)}
    consumers = {name: await connect(hub, each) for name, each in passes.items()}
    consumers["open"] = await connect(hub, FOR_EVER)
    assert (await connect(hub, Pass("a", now + 0.3, 100))).ending, "it would end before a look"

    def ended() -> set[str]:
        hub.look(clock.monotonic())
        return {name for name, each in consumers.items() if each.ending}

    clock.move(94)
    assert ended() == set()
    clock.move(5.2)
    assert ended() == {"short"}
    clock.jump(895.8)
    assert ended() == {"short"}, "more than a look before its end"
    clock.jump(4.5)
    assert ended() == {"short", "long"}
    due = consumers["long"].ends_at
    clock.move(1)
    assert ended() == {"short", "long"}
    long = consumers["long"]
    assert long.ends_at == long.pass_ended_at == due, "a stalled stream is cut off so long after it"
    assert {name for name, each in consumers.items() if each.pass_ended_at < math.inf} == {
        "short",
        "long",
    }


async def test_passes_end_by_the_time_of_day_of_the_agent_not_by_the_one_of_the_entries(
    world: World,
) -> None:
    entries, agent = VirtualClock(), VirtualClock()
    agent.jump(-500)
    hub = hub_of(world, entries, agent.now_ms)
    now = agent.now_ms() / 1000
    consumer = await connect(hub, Pass("a", now + 100, 100))
    assert consumer.connected_at == entries.now_ms() / 1000
    assert not consumer.ending, "by the clock of the entries its pass is over"
    hub.look(entries.monotonic())
    assert not consumer.ending
    agent.jump(99.9)
    hub.look(entries.monotonic())
    assert consumer.ending
    assert consumer.pass_ended_at == entries.monotonic()


async def test_streams_whose_credential_is_gone_end_spread(world: World) -> None:
    clock = VirtualClock()
    hub = hub_of(world, clock)
    gone = [await connect(hub, Pass("gone")) for _ in range(200)]
    kept = [await connect(hub, Pass("kept")), await connect(hub, FOR_EVER)]
    hub.end_without(lambda credential: credential in ("kept", None))
    ended = []
    for _ in range(11):
        hub.look(clock.monotonic())
        ended.append(sum(each.ending for each in gone))
        clock.move(GONE_SPREAD_SECONDS / 10)
    assert ended[0] <= 20
    assert ended[-1] == 200
    for tenth in range(1, 10):
        assert ended[tenth] == pytest.approx(20 * tenth, abs=40)
    assert not any(each.ending for each in kept)


async def test_a_second_change_of_credentials_puts_no_end_off(world: World) -> None:
    clock = VirtualClock()
    hub = hub_of(world, clock)
    gone = [await connect(hub, Pass("gone")) for _ in range(20)]
    hub.end_without(lambda credential: credential is None)
    due = [each.ends_at for each in gone]
    clock.move(GONE_SPREAD_SECONDS)
    hub.end_without(lambda credential: credential is None)
    assert [each.ends_at for each in gone] == due
    assert [each.pass_ended_at for each in gone] == due


def hub_of(world: World, clock: VirtualClock, time_of_day: Callable[[], int] | None = None) -> Hub:
    return Hub(
        world.store,
        world.ring,
        Framer(),
        heartbeat=20,
        max_connection_age=0,
        max_clients=1_000,
        clock=clock.clock,
        time_of_day=time_of_day,
    )


async def connect(hub: Hub, pass_: Pass) -> Any:
    return await hub.connect(None, Filter(), checkpoints=False, address="[::1]:1", pass_=pass_)
