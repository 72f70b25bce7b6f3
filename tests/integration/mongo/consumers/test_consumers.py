"""Named consumers on MongoDB: contention, damaged and lost documents, and the cost in commands.

mongo-java-server only: the updates of FerretDB are not atomic, so it proves nothing here.
"""

import asyncio
from collections import Counter
from typing import Any

import pytest
from pymongo import monitoring
from pymongo.database import Database

from oplogd.errors import ConsumerNotFoundError, StoreUnavailableError
from oplogd.model.consumer import ShardKey
from oplogd.model.lease import MAX_TERM
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.mongo.link.layout import Document
from tests.integration.mongo.committing import opened
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Command, Wire
from tests.kits.store.consuming import (
    FIRST,
    KEY,
    NAME,
    OF_OPLOG,
    SECOND,
    SETTINGS,
    acknowledge,
    created,
    given,
    position,
    reading,
)

OTHER = ShardKey("other", 0)


def swaps(command: Command) -> bool:
    return command.get("findAndModify") == "oplog_consumer_shards"


def reads_shards(command: Command) -> bool:
    return command.get("find") == "oplog_consumer_shards"


def shard_id(database: Database[Document], name: str, number: int = 0) -> str:
    found = database["oplog_consumers"].find_one({"_id": name}) or {}
    return f"{found['of']}/{number}"


class Commands(monitoring.CommandListener):
    """Remembers the commands on named consumers."""

    def __init__(self) -> None:
        self.seen: list[Command] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if str(event.command.get(event.command_name)).startswith("oplog_consumer") or (
            "oplog_consumers" in str(event.command)
        ):
            self.seen.append(dict(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass

    def counts(self) -> Counter[str]:
        """Return the numbers of commands since the last call, by their names."""
        counts = Counter(next(iter(each)) for each in self.seen)
        self.seen.clear()
        return counts


async def test_acknowledgements_cost_two_reads_and_a_write_for_each_change(
    plain_url: str, make_store: MakeStore
) -> None:
    commands = Commands()
    store = await opened(make_store, plain_url, event_listeners=[commands])
    keys = [ShardKey(NAME, number) for number in range(20)]
    await created(store, settings=SETTINGS._replace(shards=20))
    for key in keys:
        await reading(store, key=key)
    commands.counts()
    acknowledgements = [given(SECOND, key=key) for key in keys]
    await acknowledge(store, *acknowledgements)
    assert commands.counts() == {"find": 2, "findAndModify": 20}
    outcomes = await acknowledge(store, *acknowledgements)
    assert all(each.is_older for each in outcomes)
    assert commands.counts() == {"find": 2}
    await store.consumers.terms(keys)
    assert commands.counts() == {"find": 2}
    await store.consumers.take(KEY, "a", 1)
    assert commands.counts() == {"find": 2}


async def test_changes_of_one_call_go_eight_at_a_time(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    store = await opened(make_store, wire.url())
    keys = [ShardKey(NAME, number) for number in range(9)]
    await created(store, settings=SETTINGS._replace(shards=9))
    for key in keys:
        await reading(store, key=key)
    held = [wire.hold(swaps) for _ in range(9)]
    acknowledging = asyncio.create_task(
        acknowledge(store, *(given(FIRST, key=key) for key in keys))
    )
    for each in held[:8]:
        await asyncio.to_thread(each.wait)
    await store.consumers.find(NAME)
    assert held[8].command == {}
    for each in held:
        await asyncio.to_thread(each.wait)
        await asyncio.to_thread(each.release)
    assert [each.error for each in await acknowledging] == [None] * 9


async def test_one_acknowledgement_in_a_race_is_judged_again_and_the_others_are_not(
    wire: Wire, plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    await created(other)
    await created(other, "other")
    for key in (KEY, OTHER):
        await reading(other, key=key)
    id_ = shard_id(database, NAME)
    held = wire.hold(lambda command: swaps(command) and command["query"]["_id"] == id_)
    acknowledging = asyncio.create_task(acknowledge(store, given(FIRST), given(FIRST, key=OTHER)))
    await asyncio.to_thread(held.wait)
    await acknowledge(other, given(SECOND))
    await asyncio.to_thread(held.release)
    raced, single = await acknowledging
    assert raced.is_older
    assert raced.shard == await position(other)
    assert single.shard == await position(other, OTHER)
    assert single.shard is not None
    assert single.shard.position == FIRST


async def test_a_shard_in_the_way_of_every_change_ends_the_call(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """As while no majority has the document that the primary has: reads return an older one."""
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url(), timing=Timing(majority_seconds=0.0))
    await created(other)
    assert await reading(other) == 1

    async def overtaken(call: asyncio.Task[Any]) -> None:
        await asyncio.to_thread(held.wait)
        await reading(other)
        await asyncio.to_thread(held.release)

    match = "the consumer billing changes too often, or no majority"
    held = wire.hold(swaps)
    taking = asyncio.create_task(reading(store))
    await overtaken(taking)
    with pytest.raises(StoreUnavailableError, match=match):
        await taking
    held = wire.hold(swaps)
    acknowledging = asyncio.create_task(acknowledge(store, given(FIRST, 2)))
    await overtaken(acknowledging)
    (outcome,) = await acknowledging
    assert isinstance(outcome.error, StoreUnavailableError)
    assert (await position(other)).term == 3


async def test_consumers_deleted_meanwhile_do_not_shorten_a_page(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    for name in ("a", "b", "c", "d"):
        await created(other, name)
    held = wire.hold(reads_shards)
    selecting = asyncio.create_task(store.consumers.select("", 3))
    await asyncio.to_thread(held.wait)
    await other.consumers.delete("b")
    await asyncio.to_thread(held.release)
    assert [row.consumer.name for row in await selecting] == ["a", "c", "d"]


async def test_a_consumer_created_again_during_a_read_is_not_taken_for_a_lost_one(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    await created(other)
    held = wire.hold(reads_shards)
    finding = asyncio.create_task(store.consumers.find(NAME))
    await asyncio.to_thread(held.wait)
    await other.consumers.delete(NAME)
    await created(other)
    await asyncio.to_thread(held.release)
    with pytest.raises(ConsumerNotFoundError):
        await finding


class ClusterTimes(Commands):
    """Lets the cluster's time pass with each change of a named consumer."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire
        # Collections, and whether their read follows the last change.
        self.reads: list[tuple[str, bool]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        super().started(event)
        command = event.command
        if not self.seen or self.seen[-1] != command:
            return
        concern = command.get("readConcern", {})
        after = concern.get("afterClusterTime")
        if event.command_name == "find":
            is_after = after is not None and after.time == self._wire.cluster_seconds
            self.reads.append((command["find"], concern.get("level") == "majority" and is_after))
        elif event.command_name in ("insert", "findAndModify", "update"):
            assert after is None
            if command[event.command_name] != "oplog_meta":
                self._wire.cluster_seconds += 1


async def test_each_read_follows_the_changes_before_it_also_after_a_fail_over(
    plain_url: str, make_store: MakeStore
) -> None:
    with Wire(plain_url, as_replica_set=True) as wire:
        times = ClusterTimes(wire)
        # The stand-in has no retryable writes.
        url = wire.url(retryWrites="false")
        store = MongoStore(url, collection="plain", lease=60, event_listeners=[times])
        await store.open()
        try:
            wire.cluster_seconds += 5
            await created(store)
            assert await reading(store) == 1
            await acknowledge(store, given(FIRST))
            await store.consumers.seek(NAME, [0], SECOND)
            await store.consumers.delete(NAME)
            await created(store)
            assert await reading(store) == 4
        finally:
            await store.close()
    begun, reads = times.reads[0], times.reads[1:]
    assert begun[0] == "oplog_consumers"
    assert {name for name, _ in reads} == {
        "oplog_consumers",
        "oplog_consumer_shards",
        "oplog_meta",
    }
    assert [each for each in reads if not each[1]] == []


@pytest.mark.parametrize(
    "damage",
    [
        {"term": "7"},
        {"term": -1},
        {"term": MAX_TERM + 1},
        {"position": 5},
        {"place": 5},
        {"reader": None},
        {"acknowledged_ms": 0.5},
    ],
)
async def test_a_damaged_shard_is_named_and_does_not_hinder_others(
    damage: Document, plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    store = await opened(make_store, plain_url)
    await created(store)
    await created(store, "other")
    for key in (KEY, OTHER):
        await reading(store, key=key)
    database["oplog_consumer_shards"].update_one(
        {"_id": shard_id(database, NAME)},
        {"$set": {f"shard.{name}": value for name, value in damage.items()}},
    )
    match = "/0 of oplog_consumer_shards is damaged, put it right: position"
    with pytest.raises(StoreUnavailableError, match=match):
        await reading(store)
    with pytest.raises(StoreUnavailableError, match=match):
        await store.consumers.find(NAME)
    damaged, sound = await acknowledge(store, given(FIRST), given(FIRST, key=OTHER))
    assert isinstance(damaged.error, StoreUnavailableError)
    assert sound.error is None
    terms = await store.consumers.terms([KEY, OTHER])
    assert terms == ({OTHER: 1} if "term" in damage else {KEY: 1, OTHER: 1})
    if "term" in damage:
        with pytest.raises(StoreUnavailableError, match=match):
            await store.consumers.delete(NAME)
    else:
        await store.consumers.delete(NAME)


@pytest.mark.parametrize(
    ("damage", "is_deletable"),
    [
        ({"settings": "{}"}, True),
        ({"settings": 5}, True),
        ({"created": "now"}, True),
        ({"shards": 2}, True),
        ({"shards": 0}, False),
        ({"of": 5}, False),
    ],
)
async def test_a_damaged_consumer_is_an_error_that_names_it(
    damage: Document,
    is_deletable: bool,
    plain_url: str,
    database: Database[Document],
    make_store: MakeStore,
) -> None:
    store = await opened(make_store, plain_url)
    await created(store, settings=OF_OPLOG)
    await created(store, "other")
    await reading(store, key=OTHER)
    database["oplog_consumers"].update_one({"_id": NAME}, {"$set": damage})
    match = "damaged settings|billing of oplog_consumers is damaged, put it right"
    with pytest.raises(StoreUnavailableError, match=match):
        await store.consumers.find(NAME)
    with pytest.raises(StoreUnavailableError, match=match):
        await store.consumers.create(NAME, OF_OPLOG, FIRST)
    _, sound = await acknowledge(store, given(FIRST), given(FIRST, key=OTHER))
    assert sound.error is None
    if is_deletable:
        await store.consumers.delete(NAME)
        await created(store)
    else:
        with pytest.raises(StoreUnavailableError, match=match):
            await store.consumers.delete(NAME)


async def test_a_lost_shard_is_named_until_its_consumer_is_created_again(
    plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    store = await opened(make_store, plain_url)
    await created(store, settings=OF_OPLOG)
    await reading(store, key=ShardKey(NAME, 2))
    id_ = shard_id(database, NAME, 1)
    database["oplog_consumer_shards"].delete_one({"_id": id_})
    match = f"oplog_consumer_shards has lost the document {id_}; delete the consumer"
    for call in (
        lambda: store.consumers.find(NAME),
        lambda: store.consumers.select("", 5),
        lambda: store.consumers.create(NAME, OF_OPLOG, FIRST),
        lambda: reading(store, key=ShardKey(NAME, 1)),
    ):
        with pytest.raises(StoreUnavailableError, match=match):
            await call()
    (outcome,) = await acknowledge(store, given(FIRST, key=ShardKey(NAME, 1)))
    assert isinstance(outcome.error, StoreUnavailableError)
    assert await reading(store, key=ShardKey(NAME, 2)) == 2
    await store.consumers.delete(NAME)
    await created(store)
    assert await reading(store) == 4


async def test_a_damaged_note_of_ended_terms_holds_up_creations_only(
    plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    store: MongoStore = await opened(make_store, plain_url)
    await created(store)
    await created(store, "other")
    await store.consumers.delete("other")
    chosen: Document = {"_id": "oplog_consumers"}
    database["oplog_meta"].update_one(chosen, {"$set": {"ended": "1"}})
    with pytest.raises(StoreUnavailableError, match="oplog_consumers of oplog_meta is damaged"):
        await store.consumers.create("other", SETTINGS, FIRST)
    assert await reading(store) == 1
    database["oplog_meta"].update_one(chosen, {"$set": {"ended": 8}})
    _, is_new = await store.consumers.create("other", SETTINGS, FIRST)
    assert not is_new
    assert await reading(store, key=OTHER) == 9
