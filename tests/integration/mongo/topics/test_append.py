"""Appends to topics: none lost or doubled, whatever happens to commands and their answers."""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.errors import StoreUnavailableError
from oplogd.model.names import TopicName
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.setup.setup import CollectionKind
from oplogd.store.topics import Placed, Refused, TopicEntry
from tests.integration.mongo.topics.topics import (
    ENTRIES,
    NAME,
    append,
    batch,
    entries_of,
    inserts_entries,
    payloads_of,
    place,
    stored,
)
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Wire
from tests.kits.processes.logged import DEADLINE


@pytest.mark.parametrize(
    ("sort", "kind", "rounds"), [("capped_url", "capped", 8), ("plain_url", "plain", 30)]
)
async def test_two_stores_that_append_to_five_topics_at_once_lose_and_double_nothing(
    sort: str,
    kind: CollectionKind,
    rounds: int,
    request: pytest.FixtureRequest,
    make_store: MakeStore,
) -> None:
    url: str = request.getfixturevalue(sort)
    stores = [make_store(url, kind, lease=60) for _ in range(2)]
    for store in stores:
        await store.open()
    made = [await stores[0].topics.create(TopicName("ns", str(n)), None) for n in range(5)]
    outcomes: dict[str, Placed] = {}

    async def go(who: int) -> None:
        for number in range(rounds):
            batches = [batch(topic, f"{who}-{number}-a", f"{who}-{number}-b") for topic in made]
            placed = await stores[who].topics.append(batches)
            for topic, outcome in zip(made, placed, strict=True):
                assert isinstance(outcome, Placed)
                outcomes[f"{topic.log} {who}-{number}"] = outcome

    await asyncio.gather(go(0), go(1))
    for topic in made:
        entries = await entries_of(stores[0].topics, topic)
        assert [each.offset for each in entries] == list(range(1, 4 * rounds + 1))
        stamps = [(each.ms, each.sequence) for each in entries]
        assert stamps == sorted(set(stamps))
        texts = [each.data[12:-2] for each in entries]
        for who in range(2):
            sent = [f"{who}-{number}-{part}" for number in range(rounds) for part in "ab"]
            assert [text for text in texts if text.startswith(f"{who}-")] == sent
        for key, placed in outcomes.items():
            log, text = key.split()
            if log == str(topic.log):
                assert texts[placed.first.offset - 1] == f"{text}-a"
                assert texts[placed.last.offset - 1] == f"{text}-b"
        assert await entries_of(stores[1].topics, topic) == entries


@pytest.mark.parametrize(
    ("sort", "kind", "count"), [("capped_url", "capped", 40), ("plain_url", "plain", 100)]
)
async def test_a_reader_beside_two_writers_gets_every_entry_in_order(
    sort: str,
    kind: CollectionKind,
    count: int,
    request: pytest.FixtureRequest,
    make_store: MakeStore,
) -> None:
    url: str = request.getfixturevalue(sort)
    stores = [make_store(url, kind, lease=60) for _ in range(3)]
    for store in stores:
        await store.open()
    topic = await stores[0].topics.create(NAME, None)

    async def write(who: int) -> None:
        for number in range(count):
            await place(stores[who].topics, topic, f"{who}-{number}")

    seen: list[TopicEntry] = []

    async def read() -> None:
        log = stores[2].topics.log(topic)
        while len(seen) < 2 * count:
            after = len(seen)
            if not (page := await log.read(after, 1000)):
                await stores[2].topics.news({topic.log: after}, 60)
            seen.extend(page)

    async with asyncio.timeout(4 * DEADLINE):
        await asyncio.gather(write(0), write(1), read())
    assert [each.offset for each in seen] == list(range(1, 2 * count + 1))
    assert await entries_of(stores[0].topics, topic) == seen


async def test_an_answer_that_is_lost_doubles_nothing(wire: Wire, make_store: MakeStore) -> None:
    store = make_store(wire.url(), "plain", lease=60)
    await store.open()
    made = [await store.topics.create(TopicName("ns", str(n)), None) for n in range(3)]
    await place(store.topics, made[0], "before")
    wire.cut(inserts_entries)
    outcomes = await store.topics.append([batch(topic, "a", "b") for topic in made])
    assert wire.cuts == 1  # the repetition finds the entries
    wire.cut(None)
    marks = [each for each in outcomes if isinstance(each, Placed)]
    assert [(each.first.offset, each.last.offset) for each in marks] == [(2, 3), (1, 2), (1, 2)]
    assert await payloads_of(store.topics, made[0]) == ["before", "a", "b"]
    for topic in made[1:]:
        assert await payloads_of(store.topics, topic) == ["a", "b"]
    await store.close()


async def test_a_batch_of_an_append_that_failed_does_not_land_later(
    wire: Wire, make_store: MakeStore
) -> None:
    store = make_store(wire.url(), "plain", lease=60)
    await store.open()
    topic = await store.topics.create(NAME, None)
    await place(store.topics, topic, "a")
    wire.cut(lambda command: command.get("find") == ENTRIES)
    with pytest.raises(StoreUnavailableError):
        await append(store.topics, topic, "b")
    wire.cut(None)
    await place(store.topics, topic, "c")
    assert await payloads_of(store.topics, topic) == ["a", "c"]
    await store.close()


async def test_an_insert_that_does_not_reach_the_server_is_repeated_twice(
    wire: Wire, make_store: MakeStore
) -> None:
    store = make_store(wire.url(retryWrites="false"), "plain", lease=60)
    await store.open()
    topic = await store.topics.create(NAME, None)
    wire.cut(inserts_entries, "before")
    with pytest.raises(StoreUnavailableError):
        await append(store.topics, topic, "a")
    assert wire.cuts == 3
    wire.cut(None)
    await place(store.topics, topic, "b")
    assert await payloads_of(store.topics, topic) == ["b"]
    await store.close()


@pytest.mark.parametrize("beaten", [False, True])
async def test_an_insert_that_is_carried_out_after_its_repetition_doubles_nothing(
    beaten: bool,
    wire: Wire,
    plain_url: str,
    database: Database[Document],
    make_store: MakeStore,
) -> None:
    other = make_store(plain_url, "plain", lease=60)
    await other.open()
    store = make_store(wire.url(), "plain", lease=60)
    await store.open()
    topic = await other.topics.create(NAME, None)
    await place(store.topics, topic, "first")
    held = wire.hold(inserts_entries)
    writing = asyncio.create_task(place(store.topics, topic, "a", "b"))
    await asyncio.to_thread(held.wait)
    if beaten:
        await place(other.topics, topic, "other")
    await asyncio.to_thread(held.cut)
    placed = await writing
    await asyncio.to_thread(held.release)
    wanted = ["first", *["other"] * beaten, "a", "b"]
    assert await payloads_of(other.topics, topic) == wanted
    assert (placed.first.offset, placed.last.offset) == (len(wanted) - 1, len(wanted))
    assert [offset for offset, _ in stored(database, topic)] == list(range(1, len(wanted) + 1))
    await store.close()


async def test_a_late_copy_of_an_insert_that_lands_first_counts_as_the_append(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """The repetition has read the head already, and meets its own entries."""
    store = make_store(wire.url(), "plain", lease=60)
    await store.open()
    topic = await store.topics.create(NAME, None)
    first = wire.hold(inserts_entries)
    writing = asyncio.create_task(place(store.topics, topic, "a", "b"))
    await asyncio.to_thread(first.wait)
    second = wire.hold(inserts_entries)
    await asyncio.to_thread(first.cut)
    await asyncio.to_thread(second.wait)
    await asyncio.to_thread(first.release)
    await asyncio.to_thread(second.release)
    placed = await writing
    assert (placed.first.offset, placed.last.offset) == (1, 2)
    assert await payloads_of(store.topics, topic) == ["a", "b"]
    await store.close()


# --- Deletion ---


@pytest.mark.parametrize("known", [False, True])
async def test_a_publish_that_races_with_a_deletion_is_refused(
    known: bool, wire: Wire, plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    other = make_store(plain_url, "plain", lease=60)
    await other.open()
    store = make_store(wire.url(), "plain", lease=60)
    await store.open()
    old, kept = [await other.topics.create(TopicName("ns", name), None) for name in "ab"]
    if known:
        await place(store.topics, old, "first")
    held = wire.hold(inserts_entries)
    writing = asyncio.create_task(
        store.topics.append([batch(kept, "x"), batch(old, "y", "z"), batch(kept, "w")])
    )
    await asyncio.to_thread(held.wait)
    await other.topics.delete(old.name)
    new = await other.topics.create(old.name, None)
    await asyncio.to_thread(held.release)
    outcomes = await writing
    assert [isinstance(each, Placed) for each in outcomes] == [True, False, True]
    assert outcomes[1] is Refused.DELETED
    assert await payloads_of(other.topics, kept) == ["x", "w"]
    assert await payloads_of(other.topics, new) == []
    kinds = [kind for _, kind in stored(database, old)]
    assert kinds == [*["message"] * known, "end"]
    await store.close()


async def test_a_deletion_beaten_by_a_publish_ends_the_log_behind_it(
    wire: Wire, plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    other = make_store(plain_url, "plain", lease=60)
    await other.open()
    store = make_store(wire.url(), "plain", lease=60)
    await store.open()
    topic = await other.topics.create(NAME, None)
    held = wire.hold(inserts_entries)
    deleting = asyncio.create_task(store.topics.delete(NAME))
    await asyncio.to_thread(held.wait)
    last = (await place(other.topics, topic, "a", "b")).last
    await asyncio.to_thread(held.release)
    await deleting
    assert stored(database, topic) == [(1, "message"), (2, "message"), (3, "end")]
    assert await other.topics.find(NAME) is None
    front = (await other.topics.log(await other.topics.create(NAME, None)).locate()).front
    assert (front.ms, front.sequence) > (last.ms, last.sequence)
    await store.close()


# --- Races for names and numbers ---


@pytest.mark.parametrize(("sort", "kind"), [("capped_url", "capped"), ("plain_url", "plain")])
async def test_races_for_a_name_have_one_winner_and_logs_have_different_numbers(
    sort: str, kind: CollectionKind, request: pytest.FixtureRequest, make_store: MakeStore
) -> None:
    url: str = request.getfixturevalue(sort)
    stores = [make_store(url, kind, lease=60) for _ in range(2)]
    for store in stores:
        await store.open()
    logs = []
    for number in range(20):
        name = TopicName("ns", str(number))
        results = await asyncio.gather(
            *(store.topics.create(name, None) for store in stores), return_exceptions=True
        )
        winners = [each for each in results if not isinstance(each, BaseException)]
        assert len(winners) == 1
        assert await stores[0].topics.find(name) == winners[0]
        logs.append(winners[0].log)
    assert len(set(logs)) == 20
