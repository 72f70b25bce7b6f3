"""In any order of events, each consumer has everything that the wire contract promises."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import EventId, Mark, format_id
from oplogd.model.operation import Operation
from oplogd.model.shard import Shard
from oplogd.stream.ring.filters import Filter
from tests.kits.models.operations import operation, operations
from tests.kits.models.properties import examples
from tests.kits.stream.clients import Client
from tests.kits.stream.worlds import ROOMY, Sizes, World

# More than any of these streams can have: an endless one fails.
MANY_CHUNKS = 5_000


class Nothing(NamedTuple):
    """No effect: superfluous steps shrink to this."""


class Append(NamedTuple):
    operations: list[Operation]


class Grow(NamedTuple):
    """Append, and let the follower read it at once."""

    operations: list[Operation]


class Tick(NamedTuple):
    """Move the clock forwards or back."""

    ms: int


class Advance(NamedTuple):
    """Run one round of the follower."""


class RestartRing(NamedTuple):
    """Make the follower lose its place."""


class Fail(NamedTuple):
    """Make one call of the store fail."""


class Purge(NamedTuple):
    """Purge the tombstones older than this before the head's time."""

    age_ms: int


class NewEpoch(NamedTuple):
    """Set the clock back by this, and the log aside."""

    back_ms: int


RARE: list[type] = [Purge, NewEpoch, RestartRing, Fail]

Event = Nothing | Append | Grow | Tick | Advance | RestartRing | Fail | Purge | NewEpoch

StartKind = Literal["none", "zero", "one", "seen", "ms", "altered", "beyond", "foreign"]


@dataclass(frozen=True)
class Connect:
    """Connect a new consumer.

    ``at``: the place of its id in the history, from 0 to 1. ``off``: distance of an ``ms`` from it.
    """

    filter: Filter
    kind: StartKind
    at: float
    off: int
    checkpoints: bool
    meanwhile: list[Event]


@dataclass(frozen=True)
class Read:
    client: int
    chunks: int
    meanwhile: list[Event]


class Disconnect(NamedTuple):
    client: int


@dataclass(frozen=True)
class Resume:
    """Connect again. ``filter`` None: the same one."""

    client: int
    filter: Filter | None
    meanwhile: list[Event]


Action = Event | Connect | Read | Disconnect | Resume

filters = st.sampled_from(
    [
        Filter(frozenset(types), frozenset(parents))
        for types in ("", "a", "b", "ab")
        for parents in ("", "", "x", "yz")
    ]
    + [
        Filter(parents=frozenset("xy"), within=frozenset("yz")),
        Filter(types=frozenset("a"), ids=frozenset("12")),
        Filter(events=frozenset({"delete"})),
        Filter(shard=Shard(1, 2)),
        Filter(types=frozenset("ab"), shard=Shard(0, 3)),
        Filter(types=frozenset("ab"), events=frozenset({"insert", "update"})),
        Filter(types=frozenset("/")),
    ]
)
batches = st.lists(operations(), min_size=1, max_size=6)
appends = st.builds(Append, batches)
grows = st.builds(Grow, batches)
ticks = st.sampled_from([*map(Tick, [0, 1, 7, 999, 1500, -1, -2000])])
purges = st.sampled_from([*map(Purge, [-1, 0, 1, 1000, 2000])])
epochs = st.sampled_from([*map(NewEpoch, [0, 500, 100_000])])
events: st.SearchStrategy[Event] = st.one_of(
    st.just(Nothing()), appends, appends, grows, grows, ticks, st.just(Advance()),
    st.just(Advance()), purges, st.just(RestartRing()), st.just(Fail()), epochs,
)  # fmt: skip
meanwhiles = st.lists(events, max_size=4)
clients = st.integers(0, 4)
disconnects = st.sampled_from([*map(Disconnect, range(5))])
connects = st.builds(
    Connect,
    filters,
    st.sampled_from(
        ["none", "zero", "one", "seen", "seen", "seen", "ms", "ms", "altered", "beyond", "foreign"]
    ),
    st.floats(0, 1),
    st.sampled_from([0, 0, 1, -1, 500, -500, 1000]),
    st.booleans(),
    meanwhiles,
)
reads = st.builds(Read, clients, st.integers(1, 4), meanwhiles)
resumes = st.builds(Resume, clients, st.none() | filters, meanwhiles)
actions: st.SearchStrategy[Action] = st.one_of(
    st.just(Nothing()), grows, grows, grows, grows, events, connects,
    reads, reads, reads, reads, resumes, disconnects,
)  # fmt: skip
all_sizes = st.builds(
    Sizes,
    cap=st.sampled_from([1, 400, 800, 1200, 2500, 10**9]),
    ring_entries=st.sampled_from([1, 3, 8, 16, 1000]),
    ring_bytes=st.sampled_from([1, 500, 3000, 10**9, 10**9]),
    page=st.sampled_from([1, 2, 5, 500]),
    chunk=st.sampled_from([1, 400, 10**6]),
)


@pytest.mark.thorough
@examples(2)
@given(
    sizes=all_sizes,
    rare=st.frozensets(st.sampled_from(RARE)),
    first=st.tuples(grows, connects, connects),
    then=st.lists(actions, min_size=20, max_size=60),
    cheap=st.sampled_from([0, 8]),
    pairs=st.sampled_from([0, 1_024]),
    idle=st.sampled_from([0, 16_384]),
)
def test_every_consumer_has_everything_promised_to_it(
    sizes: Sizes,
    rare: frozenset[type],
    first: tuple[Action, ...],
    then: list[Action],
    cheap: int,
    pairs: int,
    idle: int,
) -> None:
    plan = [_only(rare, action) for action in (*first, *then)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("oplogd.stream.ring.view.CHEAP", cheap)
        patch.setattr("oplogd.stream.ring.keys._MAX_PAIRS", pairs)
        patch.setattr("oplogd.stream.ring.index.MAX_IDLE", idle)
        asyncio.run(_play(World(Path(folder), sizes, patch), plan))


@pytest.mark.parametrize("ms", [1, 6])
def test_a_time_between_a_new_epoch_and_its_first_operation_brings_reset(
    ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = Filter(frozenset(), frozenset())
    plan: list[Action] = [
        Grow([operation("insert", "a", "1")]),
        NewEpoch(0),
        Tick(7),
        Grow([operation("insert", "a", "1")]),
        Connect(everything, "ms", 0.0, ms - 7, checkpoints=False, meanwhile=[]),
    ]

    async def play() -> list[int]:
        world = World(tmp_path, ROOMY, monkeypatch)
        await _play(world, plan)
        return [client.resets for client in world.clients]

    assert asyncio.run(play()) == [1]


def _only(rare: frozenset[type], action: Action) -> Action:
    """Drop rare events other than these: if all may happen, one undoes the effect of another."""
    if isinstance(action, Connect | Read | Resume):
        return replace(
            action, meanwhile=[event for event in action.meanwhile if _happens(rare, event)]
        )
    return action if _happens(rare, action) else Nothing()


def _happens(rare: frozenset[type], action: Action) -> bool:
    return type(action) in rare or type(action) not in RARE


async def _play(world: World, plan: list[Action]) -> None:
    await world.start()
    try:
        for action in plan:
            await _act(world, action)
        world.store.meddle.clear()
        await world.catch_up()
        for client in world.clients:
            if client.consumer is None:
                await client.resume(client.filter)
            chunks = 0
            while await client.read():
                chunks += 1
                assert chunks < MANY_CHUNKS
            client.check_drained()
    finally:
        await world.stop()


async def _act(world: World, action: Action) -> None:
    if isinstance(action, Connect):
        client = Client(world, action.filter, action.checkpoints)
        last_id = await _start_id(world, action)
        world.store.meddle = _meddling(world, action.meanwhile)
        await client.begin(last_id)
        world.clients.append(client)
    elif isinstance(action, Read | Disconnect | Resume):
        if not world.clients:
            return
        client = world.clients[action.client % len(world.clients)]
        if isinstance(action, Disconnect):
            await client.disconnect()
        elif isinstance(action, Resume):
            await client.disconnect()
            world.store.meddle = _meddling(world, action.meanwhile)
            await client.resume(client.filter if action.filter is None else action.filter)
        elif client.consumer is not None:
            world.store.meddle = _meddling(world, action.meanwhile)
            for _ in range(action.chunks):
                await client.read()
    elif not isinstance(action, Fail):
        await _happen(world, action)
    world.store.meddle = []


def _meddling(world: World, meanwhile: list[Event]) -> list[Callable[[], Awaitable[None]]]:
    async def happen(event: Event) -> None:
        await _happen(world, event)

    return [lambda event=event: happen(event) for event in meanwhile]  # type: ignore[misc]


async def _happen(world: World, event: Event) -> None:
    match event:
        case Append(operations=batch):
            await world.append(batch)
        case Grow(operations=batch):
            await world.append(batch)
            await world.catch_up()
        case Tick(ms=ms):
            world.clock.ms += ms
        case Advance():
            await world.advance()
        case RestartRing():
            await world.restart_ring()
        case Purge(age_ms=age):
            await world.purge(world.head.ms - age)
        case NewEpoch(back_ms=back):
            world.clock.ms -= back
            await world.new_epoch()
        case Nothing():
            pass
        case Fail():
            raise StoreUnavailableError("the store is unreachable for a moment")


async def _start_id(world: World, start: Connect) -> str:
    first = world.epoch.offset + 1
    head = world.head
    offset = first + round(start.at * (head.offset - first))
    match start.kind:
        case "none":
            return ""
        case "zero":
            return "0"
        case "one":
            return "1"
        case "beyond":
            return format_id(Mark(head.offset + 1 + abs(start.off), head.ms))
        case "foreign":
            seconds = world.clock.ms // 1000 - abs(start.off)
            return f"{seconds:08x}{EventId(0, 0xC7F0, 0x95528DD0F3).millis:04x}95528dd0f386"
        case "ms":
            ms = world.mark(offset).ms if head.offset >= first else head.ms
            # No id of this log is past its head; an id far past it belongs to another log.
            return str(min(ms + start.off, head.ms) if start.off < 1000 else ms + 100_000_000)
    if head.offset < first:
        return ""
    mark = world.mark(offset)
    if start.kind == "seen":
        return format_id(mark)
    if await world.is_in_log(offset):
        return format_id(Mark(offset, mark.ms + 1))
    return format_id(Mark(offset, mark.ms + 3_600_000))
