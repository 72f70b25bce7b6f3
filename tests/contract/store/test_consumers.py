"""The life of a named consumer in every store."""

import asyncio
import contextlib

import pytest

from oplogd.errors import (
    ConsumerExistsError,
    ConsumerNotFoundError,
    StaleTermError,
    TooManyConsumersError,
)
from oplogd.model.consumer import ConsumerSettings, NamedConsumer, ShardKey, ShardPosition
from oplogd.model.transaction import Isolation
from oplogd.store import Store
from oplogd.store.consumers import Acknowledged, ConsumerRow
from tests.kits.clock.virtual import START_MS
from tests.kits.store.consuming import (
    EARLIER,
    FIRST,
    KEY,
    NAME,
    OF_OPLOG,
    SECOND,
    SETTINGS,
    THIRD,
    TIME,
    acknowledge,
    created,
    given,
    position,
    reading,
)
from tests.kits.store.kits import Kit


@pytest.mark.parametrize("settings", [SETTINGS, OF_OPLOG], ids=["topic", "oplog"])
async def test_a_new_consumer_has_all_shards_at_its_position(
    consumer_kit: Kit, consumer_store: Store, settings: ConsumerSettings
) -> None:
    wanted = ConsumerRow(
        NamedConsumer(NAME, settings, START_MS), [ShardPosition(FIRST)] * settings.shards
    )
    assert await consumer_store.consumers.create(NAME, settings, FIRST) == (wanted, True)
    consumer_kit.clock.ms += 1
    for store in (consumer_store, await consumer_kit.open()):
        assert await store.consumers.create(NAME, settings, SECOND) == (wanted, False)
        assert await store.consumers.find(NAME) == wanted


@pytest.mark.parametrize(
    "other",
    [
        SETTINGS,
        OF_OPLOG._replace(types=frozenset({"car"})),
        OF_OPLOG._replace(parents=frozenset()),
        OF_OPLOG._replace(isolation=Isolation.READ_COMMITTED),
        OF_OPLOG._replace(shards=4),
    ],
)
async def test_a_consumer_with_other_settings_is_refused_and_changes_nothing(
    consumer_store: Store, other: ConsumerSettings
) -> None:
    await created(consumer_store, settings=OF_OPLOG)
    before = await consumer_store.consumers.find(NAME)
    with pytest.raises(ConsumerExistsError, match=f"{NAME} exists with other settings"):
        await consumer_store.consumers.create(NAME, other, SECOND)
    assert await consumer_store.consumers.find(NAME) == before


async def test_a_consumer_that_nobody_created_is_not_found(consumer_store: Store) -> None:
    await created(consumer_store, "others")
    consumers = consumer_store.consumers
    for call in (
        lambda: consumers.find(NAME),
        lambda: consumers.delete(NAME),
        lambda: consumers.seek(NAME, [0], FIRST),
        lambda: consumers.take(KEY, "a", None),
        lambda: consumers.take(KEY, "a", 1),
        lambda: consumers.take(ShardKey("others", 1), "a", None),
    ):
        with pytest.raises(ConsumerNotFoundError):
            await call()
    keys = [KEY, ShardKey("others", 1)]
    outcomes = await acknowledge(consumer_store, *(given(FIRST, key=each) for each in keys))
    assert [type(each.error) for each in outcomes] == [ConsumerNotFoundError] * 2
    assert [each.shard for each in outcomes] == [None, None]
    assert await consumers.terms(keys) == {}
    with pytest.raises(ConsumerNotFoundError):
        await consumers.find(NAME)


async def test_a_take_without_a_term_gives_the_next_one_and_ends_the_one_before(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    await created(consumer_store, settings=OF_OPLOG)
    other = await consumer_kit.open()
    key = ShardKey(NAME, 2)
    for term, store, reader in ((1, consumer_store, "a"), (2, other, "b"), (3, other, "b")):
        wanted = ShardPosition("0", term=term, reader=reader)
        consumer = NamedConsumer(NAME, OF_OPLOG, START_MS)
        assert await store.consumers.take(key, reader, None) == (consumer, wanted)
        assert await position(consumer_store, key) == wanted
    assert [each.term for each in (await other.consumers.find(NAME)).shards] == [0, 0, 3]
    with pytest.raises(StaleTermError, match="shard 2 of the consumer billing has term 3, not 2"):
        await consumer_store.consumers.take(key, "a", 2)
    (outcome,) = await acknowledge(consumer_store, given(FIRST, 2, key=key))
    assert outcome.shard is None
    assert isinstance(outcome.error, StaleTermError)
    assert await position(other, key) == wanted


async def test_a_take_with_the_present_term_keeps_it_and_its_place(consumer_store: Store) -> None:
    await created(consumer_store)
    await reading(consumer_store)
    await acknowledge(consumer_store, given(FIRST), given(TIME))
    before = await position(consumer_store)
    assert (before.position, before.place) in ((FIRST, TIME), (FIRST, None))
    for reader in ("b", "b", "a"):
        _, shard = await consumer_store.consumers.take(KEY, reader, 1)
        assert shard == before._replace(reader=reader) == await position(consumer_store)
    _, shard = await consumer_store.consumers.take(KEY, "c", None)
    assert (shard.position, shard.place, shard.term) == (FIRST, None, 2)


async def test_an_acknowledgement_moves_the_position_forward_only(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    await created(consumer_store)
    await reading(consumer_store)
    consumer_kit.clock.ms += 1_000
    wanted = ShardPosition(SECOND, None, 1, "a", START_MS + 1_000)
    assert await acknowledge(consumer_store, given(SECOND)) == [Acknowledged(wanted)]
    consumer_kit.clock.ms += 1_000
    for older in (FIRST, SECOND):
        assert await acknowledge(consumer_store, given(older)) == [
            Acknowledged(wanted, is_older=True)
        ]
        assert await position(consumer_store) == wanted
    wanted = wanted._replace(position=THIRD, acknowledged_ms=START_MS + 2_000)
    assert await acknowledge(consumer_store, given(THIRD)) == [Acknowledged(wanted)]
    assert await position(consumer_store) == wanted


async def test_a_time_becomes_the_place_until_an_id_of_the_log_comes(consumer_store: Store) -> None:
    await created(consumer_store)
    await reading(consumer_store)
    for time in (TIME, EARLIER, EARLIER):
        wanted = ShardPosition("0", time, 1, "a", START_MS)
        assert await acknowledge(consumer_store, given(time)) == [Acknowledged(wanted)]
        assert await position(consumer_store) == wanted
        assert wanted.start == time
    wanted = ShardPosition(FIRST, None, 1, "a", START_MS)
    assert await acknowledge(consumer_store, given(FIRST)) == [Acknowledged(wanted)]
    assert await position(consumer_store) == wanted


async def test_a_smaller_id_replaces_the_position_that_it_names(consumer_store: Store) -> None:
    await created(consumer_store)
    await reading(consumer_store)
    await acknowledge(consumer_store, given(THIRD))
    wanted = ShardPosition(THIRD, None, 1, "a", START_MS)
    older = given(FIRST, instead_of=SECOND)
    assert await acknowledge(consumer_store, older) == [Acknowledged(wanted, is_older=True)]
    moved = wanted._replace(position=FIRST)
    assert await acknowledge(consumer_store, older._replace(instead_of=THIRD)) == [
        Acknowledged(moved)
    ]
    assert await position(consumer_store) == moved


async def test_outcomes_come_in_the_order_of_the_acknowledgements(consumer_store: Store) -> None:
    settings = SETTINGS._replace(shards=20)
    await created(consumer_store, settings=settings)
    keys = [ShardKey(NAME, number) for number in range(20)]
    for key in keys[::2]:
        await reading(consumer_store, key=key)
    ids = [f"{number:024x}" for number in range(1, 21)]
    missing = given(FIRST, key=ShardKey("missing", 0))
    outcomes = await acknowledge(
        consumer_store, missing, *(given(id_, key=key) for id_, key in zip(ids, keys, strict=True))
    )
    assert isinstance(outcomes[0].error, ConsumerNotFoundError)
    for number, outcome in enumerate(outcomes[1:]):
        if number % 2:
            assert isinstance(outcome.error, StaleTermError)
        else:
            assert outcome.shard == ShardPosition(ids[number], None, 1, "a", START_MS)
    shards = (await consumer_store.consumers.find(NAME)).shards
    assert [each.position for each in shards] == [
        "0" if number % 2 else ids[number] for number in range(20)
    ]
    assert await acknowledge(consumer_store) == []


async def test_a_seek_moves_shards_also_backwards_and_ends_their_terms(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    await created(consumer_store, settings=OF_OPLOG)
    keys = [ShardKey(NAME, number) for number in range(3)]
    for key in keys:
        await reading(consumer_store, key=key)
        await acknowledge(consumer_store, given(THIRD, key=key), given(TIME, key=key))
    untouched = await position(consumer_store, keys[1])
    row = await (await consumer_kit.open()).consumers.seek(NAME, [0, 2], FIRST)
    moved = ShardPosition(FIRST, None, 2, "", START_MS)
    assert row.shards == [moved, untouched, moved]
    assert row == await consumer_store.consumers.find(NAME)
    with pytest.raises(StaleTermError):
        await consumer_store.consumers.take(keys[0], "a", 1)
    assert await reading(consumer_store, key=keys[2]) == 3
    assert await consumer_store.consumers.terms(keys) == {keys[0]: 2, keys[1]: 1, keys[2]: 3}


async def test_a_consumer_created_again_continues_behind_the_terms_of_the_deleted_one(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    other = await consumer_kit.open()
    terms = []
    for shards in (2, 3, 1):
        await created(consumer_store, settings=SETTINGS._replace(shards=shards))
        for number in (0, 0, shards - 1):
            terms.append(await reading(other, key=ShardKey(NAME, number)))
        stale = terms[-1]
        await other.consumers.delete(NAME)
        for store in (consumer_store, other):
            with pytest.raises(ConsumerNotFoundError):
                await store.consumers.find(NAME)
        (outcome,) = await acknowledge(other, given(FIRST, stale, key=ShardKey(NAME, shards - 1)))
        assert isinstance(outcome.error, ConsumerNotFoundError)
        with pytest.raises(ConsumerNotFoundError):
            await consumer_store.consumers.delete(NAME)
    assert terms == [1, 2, 1, 4, 5, 4, 7, 8, 9]
    await created(other)
    for term in terms:
        with pytest.raises(StaleTermError):
            await consumer_store.consumers.take(KEY, "a", term)
    (last,) = await acknowledge(consumer_store, given(FIRST, 9))
    assert isinstance(last.error, StaleTermError)
    # Agents end the streams of smaller terms, also those that missed the deletion.
    assert await other.consumers.terms([KEY]) == {KEY: 10}


async def test_20_takes_at_once_give_20_terms(consumer_kit: Kit, consumer_store: Store) -> None:
    await created(consumer_store)
    stores = (consumer_store, await consumer_kit.open())
    takes = [stores[number % 2].consumers.take(KEY, str(number), None) for number in range(20)]
    taken = [shard for _, shard in await asyncio.gather(*takes)]
    assert sorted(shard.term for shard in taken) == list(range(1, 21))
    assert await position(consumer_store) == max(taken, key=lambda shard: shard.term)


async def test_of_acknowledgements_at_once_the_largest_stays(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    await created(consumer_store)
    await reading(consumer_store)
    stores = (consumer_store, await consumer_kit.open())
    ids = [f"{number * 7 % 20 + 1:024x}" for number in range(20)]
    outcomes = await asyncio.gather(
        *(acknowledge(stores[number % 2], given(id_)) for number, id_ in enumerate(ids))
    )
    for (outcome,), id_ in zip(outcomes, ids, strict=True):
        assert outcome.error is None
        assert outcome.shard is not None
        assert outcome.shard.position > id_ if outcome.is_older else outcome.shard.position == id_
    assert (await position(consumer_store)).position == max(ids)


async def test_creations_at_once_make_one_consumer(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    stores = (consumer_store, await consumer_kit.open())
    for name in ("a", "b", "c"):
        made = await asyncio.gather(
            *(stores[n % 2].consumers.create(name, OF_OPLOG, f"{n:024x}") for n in range(6))
        )
        assert sorted(is_new for _, is_new in made) == [False] * 5 + [True]
        ((new, _),) = [each for each in made if each[1]]
        assert all(row == new for row, _ in made)
        assert await consumer_store.consumers.find(name) == new


async def test_creations_deletions_and_takes_at_once_never_give_a_term_twice(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    stores = (consumer_store, await consumer_kit.open())
    terms: list[int] = []

    async def live(store: Store) -> None:
        for _ in range(6):
            await store.consumers.create(NAME, SETTINGS, "0")
            for _ in range(2):
                with contextlib.suppress(ConsumerNotFoundError):
                    terms.append(await reading(store))
            with contextlib.suppress(ConsumerNotFoundError):
                await store.consumers.delete(NAME)

    await asyncio.gather(*map(live, stores))
    assert len(set(terms)) == len(terms) > 0
    await created(consumer_store)
    assert await reading(consumer_store) > max(terms)


async def test_pages_of_consumers_are_sorted_by_name(
    consumer_kit: Kit, consumer_store: Store
) -> None:
    names = ["Z", "a", "a-b", "a.b", "a_b", "ab", "b"]
    for name in reversed(names):
        await created(consumer_store, name, OF_OPLOG if name == "ab" else SETTINGS)
    assert sorted(names) == ["Z", "a", "a-b", "a.b", "a_b", "ab", "b"]
    other = await consumer_kit.open()
    for limit in (1, 3, 7, 8):
        found: list[ConsumerRow] = []
        while page := await other.consumers.select(found[-1].consumer.name if found else "", limit):
            assert len(page) <= limit
            found += page
        assert [row.consumer.name for row in found] == names
        assert found == [await consumer_store.consumers.find(name) for name in names]
    await other.consumers.delete("a.b")
    page = await consumer_store.consumers.select("a-b", 2)
    assert [row.consumer.name for row in page] == ["a_b", "ab"]


async def test_terms_are_told_of_many_shards(consumer_store: Store) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await created(consumer_store, name, OF_OPLOG)
    keys = [ShardKey(name, number) for name in names for number in range(3)]
    for key in keys[::2]:
        await reading(consumer_store, key=key)
    await consumer_store.consumers.delete("b")
    assert await consumer_store.consumers.terms(keys) == {
        key: 1 - index % 2 for index, key in enumerate(keys) if key.name != "b"
    }
    assert await consumer_store.consumers.terms([]) == {}


async def test_shards_of_all_consumers_together_have_a_bound(
    consumer_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.consumers", "mongo.reading.consumer_life"):
        monkeypatch.setattr(f"oplogd.store.{module}.MAX_ROWS", 5)
    await created(consumer_store, "a", OF_OPLOG)
    with pytest.raises(TooManyConsumersError, match="delete some"):
        await consumer_store.consumers.create("b", OF_OPLOG, "0")
    await created(consumer_store, "c", OF_OPLOG._replace(shards=2))
    with pytest.raises(TooManyConsumersError):
        await consumer_store.consumers.create("d", SETTINGS, "0")
    assert await consumer_store.consumers.create("a", OF_OPLOG, "0") == (
        await consumer_store.consumers.find("a"),
        False,
    )
    await consumer_store.consumers.delete("c")
    await created(consumer_store, "d")
    assert [each.consumer.name for each in await consumer_store.consumers.select("", 9)] == [
        "a",
        "d",
    ]


async def test_a_reopened_store_has_everything(consumer_kit: Kit, consumer_store: Store) -> None:
    await created(consumer_store, settings=OF_OPLOG)
    await created(consumer_store, "deleted")
    assert await reading(consumer_store, key=ShardKey("deleted", 0)) == 1
    await consumer_store.consumers.delete("deleted")
    await reading(consumer_store)
    await acknowledge(consumer_store, given(FIRST), given(TIME))
    before = await consumer_store.consumers.find(NAME)
    await consumer_store.close()
    again = await consumer_kit.open()
    assert await again.consumers.find(NAME) == before
    assert await again.consumers.select("", 10) == [before]
    await created(again, "deleted")
    assert await reading(again, key=ShardKey("deleted", 0)) == 3
