"""The streams of named consumers: their terms, their starts and their ends."""

import asyncio

import pytest

from oplogd.errors import (
    ConsumerError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    StaleTermError,
    StoreUnavailableError,
    TooManyConsumersError,
    TopicNotFoundError,
)
from oplogd.model.consumer import ConsumerSettings, ShardKey
from oplogd.model.names import OPLOG
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.hub import TooManyClientsError
from oplogd.topics.consumers import readers
from oplogd.topics.consumers.readers import LOOK_SECONDS
from oplogd.topics.consumers.rules import SeekBody
from tests.kits.models.operations import numbered
from tests.unit.topics.consumers.consumer_worlds import (
    KEY,
    NAME,
    OF_TOPIC,
    SETTINGS,
    ConsumerWorld,
    ids_of,
    read,
)

TWO = ConsumerSettings(OPLOG, shards=2)


def ended(*consumers: StreamConsumer) -> list[bool]:
    return [each.ending for each in consumers]


# --- Create, seek, delete ---


async def test_a_consumer_is_created_once(world: ConsumerWorld) -> None:
    consumers = world.desk.consumers
    (id_,) = await world.grow(numbered(1))
    row = await world.desk.create(TWO)
    assert [each.position for each in row.shards] == [id_, id_]
    await world.grow(numbered(1, 2))
    assert await consumers.create(NAME, TWO, "copy") == (row, False)
    with pytest.raises(ConsumerExistsError):
        await consumers.create(NAME, SETTINGS, "now")
    with pytest.raises(ConsumerError, match="start: an event id"):
        await consumers.create("other", SETTINGS, "yesterday")
    with pytest.raises(TopicNotFoundError):
        await consumers.create("other", OF_TOPIC, "now")
    assert [each.consumer.name for each in await consumers.select("", 9)] == [NAME]


async def test_all_consumers_have_a_bounded_number_of_shards(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.sqlite.consumers.MAX_ROWS", 3)
    await world.desk.create(TWO)
    with pytest.raises(TooManyConsumersError, match="delete some"):
        await world.desk.create(TWO, name="other")
    await world.desk.create(name="other")
    assert not (await world.desk.consumers.create(NAME, TWO, "now"))[1], "it is there already"
    await world.desk.consumers.delete(NAME)
    await world.desk.create(TWO)


async def test_a_seek_moves_shards_and_ends_their_streams(world: ConsumerWorld) -> None:
    first, second = await world.grow(numbered(2))
    await world.desk.create(TWO)
    streams = [await world.desk.connect(number) for number in (0, 1)]
    row = await world.desk.consumers.find(NAME)
    moved = await world.desk.consumers.seek(row, SeekBody(first, 1))
    assert [(each.position, each.term, each.reader) for each in moved.shards] == [
        (second, 1, "host:1"),
        (first, 2, ""),
    ]
    assert ended(*streams) == [False, True]
    for position, wanted in (("copy", "0"), ("now", second), (first, first)):
        moved = await world.desk.consumers.seek(row, SeekBody(position))
        assert [each.position for each in moved.shards] == [wanted, wanted]
    assert ended(*streams) == [True, True]
    with pytest.raises(ConsumerError, match="shard: must be 0 to 1"):
        await world.desk.consumers.seek(row, SeekBody("now", 2))
    with pytest.raises(ConsumerError, match="position: an event id"):
        await world.desk.consumers.seek(row, SeekBody("0" * 40))
    with pytest.raises(StaleTermError):
        await world.desk.acknowledge(1, second)
    with pytest.raises(StaleTermError):
        await world.desk.connect(0, 1)


async def test_a_deletion_ends_the_streams_of_this_consumer(world: ConsumerWorld) -> None:
    await world.desk.create(TWO)
    await world.desk.create(name="other")
    streams = [await world.desk.connect(number) for number in (0, 1)]
    other = await world.desk.connect(name="other")
    await world.desk.consumers.delete(NAME)
    assert ended(*streams, other) == [True, True, False]
    (id_,) = await world.grow(numbered(1))
    with pytest.raises(ConsumerNotFoundError):
        await world.desk.acknowledge(1, id_)
    with pytest.raises(ConsumerNotFoundError):
        await world.desk.consumers.delete(NAME)


# --- Streams ---


async def test_a_stream_continues_behind_the_acknowledged_id(world: ConsumerWorld) -> None:
    await world.grow(numbered(1))
    await world.desk.create()
    first = await world.desk.connect(address="one:1")
    ids = await world.grow(numbered(3, 2))
    events = await read(first, 4)
    assert ids_of(events)[-3:] == ids
    await world.desk.acknowledge(first.term, ids[0])
    shard = await world.desk.shard()
    assert (shard.position, shard.term, shard.reader) == (ids[0], 1, "one:1")
    second = await world.desk.connect(address="two:2")
    assert ids_of(await read(second, 3)) == ids, "a checkpoint at the position, and the rest"
    assert ended(first, second) == [True, False]
    shard = await world.desk.shard()
    assert (shard.position, shard.term, shard.reader) == (ids[0], 2, "two:2")
    assert (second.term, second.name, second.address) == (2, NAME, "two:2")
    with pytest.raises(StaleTermError):
        await world.desk.acknowledge(first.term, ids[2])
    await world.desk.acknowledge(second.term, ids[2])


async def test_a_reader_goes_on_with_its_term_in_a_replication(world: ConsumerWorld) -> None:
    await world.desk.create(start="copy")
    times = []
    for number in range(3):
        await world.grow(numbered(1, number))
        times.append(str(world.mark(number + 1).ms))
        world.clock.ms += 1000
    stream = await world.desk.connect()
    events = await read(stream, 4)
    assert [each.event for each in events] == ["reset", "insert", "insert", "insert"]
    assert ids_of(events) == ["1", *times]
    for place in ("1", times[1]):
        await world.desk.acknowledge(1, place)
    shard = await world.desk.shard()
    assert (shard.position, shard.place) == ("0", times[1])
    again = await world.desk.connect(0, 1)
    assert (again.term, ended(stream, again)) == (1, [True, False])
    assert ids_of(await read(again, 2)) == times[1:]
    other = await world.desk.connect()
    assert ids_of(await read(other, 4)) == ["1", *times], "it has nothing yet"
    assert (await world.desk.shard()).place is None
    (live,) = await read(other, 1)
    assert live.event == "live"
    await world.desk.acknowledge(2, live.id)
    shard = await world.desk.shard()
    assert (shard.position, shard.place) == (live.id, None)


async def test_a_refused_stream_takes_no_term(world: ConsumerWorld) -> None:
    desk = world.add_desk(max_clients=1)
    await desk.create(TWO)
    reader = await desk.connect()
    for number, term in ((0, None), (0, 1), (1, None)):
        with pytest.raises(TooManyClientsError):
            await desk.connect(number, term)
    assert [each.term for each in (await desk.consumers.find(NAME)).shards] == [1, 0]
    assert ended(reader) == [False]
    with pytest.raises(StaleTermError):
        await world.desk.connect(1, 1)
    assert not world.desk.hub.consumers, "a refused reader leaves no stream"


async def test_a_stream_begins_at_what_was_acknowledged_while_it_connected(
    world: ConsumerWorld,
) -> None:
    await world.desk.create()
    ids = await world.grow(numbered(3))
    first = await world.desk.connect()
    await world.in_between("take", lambda: world.desk.acknowledge(1, ids[1]))
    second = await world.desk.connect()
    assert ids_of(await read(second, 2)) == ids[1:]
    assert ended(first, second) == [True, False]
    assert world.desk.hub.consumers == {first, second}


@pytest.mark.parametrize("settings", [SETTINGS, SETTINGS._replace(types=frozenset({"a"}))])
async def test_a_consumer_that_is_created_again_meanwhile_has_its_own_position(
    world: ConsumerWorld, settings: ConsumerSettings
) -> None:
    await world.grow(numbered(3))
    await world.desk.create()
    await world.desk.connect()

    async def create_again() -> None:
        await world.desk.consumers.delete(NAME)
        await world.desk.create(settings, "copy")

    await world.in_between("take", create_again)
    if settings == SETTINGS:
        stream = await world.desk.connect()
        assert stream.term > 1
        assert (await read(stream, 1))[0].event == "reset"
    else:
        with pytest.raises(ConsumerNotFoundError):
            await world.desk.connect()


async def test_of_readers_that_come_together_the_one_with_the_last_term_goes_on(
    world: ConsumerWorld,
) -> None:
    await world.desk.create()
    other = world.add_desk()
    streams = await asyncio.gather(*(each.connect() for each in [world.desk, other] * 10))
    assert sorted(each.term for each in streams) == [*range(1, 21)]
    for desk in world.desks:
        await desk.consumers.readers.look()
    assert [each.term for each in streams if not each.ending] == [20]


async def test_an_older_term_never_ends_the_stream_of_a_newer_one(world: ConsumerWorld) -> None:
    await world.desk.create()
    newer: list[StreamConsumer] = []
    real = world.store.consumers.take

    async def take(*arguments: object) -> object:
        taken = await real(*arguments)  # type: ignore[arg-type]
        if not newer:
            newer.append(None)  # type: ignore[arg-type]
            newer[0] = await world.desk.connect()
        return taken

    world.store.consumers.take = take  # type: ignore[method-assign, assignment]
    older = await world.desk.connect()
    assert (older.term, newer[0].term) == (1, 2)
    assert ended(older, newer[0]) == [True, False]


# --- Looks at other agents ---


async def test_a_look_ends_the_streams_that_another_agent_has_taken(world: ConsumerWorld) -> None:
    await world.desk.create(TWO)
    await world.desk.create(name="deleted")
    await world.desk.create(name="moved")
    other = world.add_desk()
    streams = [await world.desk.connect(number) for number in (0, 1)]
    streams += [await world.desk.connect(name=name) for name in ("deleted", "moved")]
    await world.desk.consumers.readers.look()
    assert ended(*streams) == [False] * 4
    taken = await other.connect(1)
    await other.consumers.delete("deleted")
    row = await other.consumers.find("moved")
    await other.consumers.seek(row, SeekBody("now"))
    assert ended(*streams) == [False] * 4
    await world.desk.consumers.readers.look()
    assert ended(*streams, taken) == [False, True, True, True, False]
    await other.consumers.readers.look()
    assert ended(taken) == [False]


async def test_a_look_forgets_streams_that_have_gone(world: ConsumerWorld) -> None:
    await world.desk.create()
    stream = await world.desk.connect()
    world.desk.hub.disconnect(stream)
    asked = []
    real = world.store.consumers.terms
    world.store.consumers.terms = lambda keys: asked.append(keys) or real(keys)  # type: ignore
    await world.desk.consumers.readers.look()
    assert asked == []
    await world.desk.connect()
    await world.desk.consumers.readers.look()
    assert asked == [[KEY]]


async def test_the_watch_looks_each_second_also_after_trouble(world: ConsumerWorld) -> None:
    await world.desk.create()
    other = world.add_desk()
    stream = await world.desk.connect()
    looked = asyncio.Event()
    trouble: list[Exception] = [StoreUnavailableError("away")]
    real = world.store.consumers.terms

    async def terms(keys: list[ShardKey]) -> dict[ShardKey, int]:
        looked.set()
        if trouble:
            raise trouble.pop()
        return await real(keys)

    world.store.consumers.terms = terms  # type: ignore[method-assign, assignment]
    watching = asyncio.create_task(world.desk.consumers.readers.watch())
    await asyncio.sleep(0)
    await other.connect()
    world.clock.move(LOOK_SECONDS / 2)
    await asyncio.sleep(0)
    assert not looked.is_set()
    world.clock.move(LOOK_SECONDS / 2)
    await looked.wait()
    assert ended(stream) == [False]
    while not stream.ending:
        assert not watching.done()
        world.clock.move(LOOK_SECONDS)
        await asyncio.sleep(0)
    watching.cancel()


async def test_a_bounded_number_of_terms_is_known(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_MOST_KNOWN", 3)
    consumers = world.desk.consumers
    await world.desk.create()
    for _ in range(3):
        await world.desk.connect()
    assert consumers.readers.settings_of(KEY, 1) == SETTINGS  # used last from now on
    await world.desk.connect()
    known = [term for term in range(6) if consumers.readers.settings_of(KEY, term)]
    assert known == [1, 3, 4]
    assert consumers.readers.settings_of(ShardKey(NAME, 1), 1) is None
