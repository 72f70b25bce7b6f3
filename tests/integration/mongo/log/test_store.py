"""Promises of the store on MongoDB beyond the contract of all stores."""

import asyncio
from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import ExecutionTimeout

from oplogd.store import BatchId
from oplogd.store.mongo.setup.setup import CollectionKind
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import folded, live_states, op, whole_log

Place = tuple[str, CollectionKind]


async def test_entries_and_states_come_back_as_they_were_written(
    place: Place, make_store: MakeStore
) -> None:
    store = make_store(*place)
    await store.open()
    written = [
        op("ä\u2028", "insert", "video", ("user/ö", "b")),
        op("b", "update"),
        op("b", "delete"),
        op("c", "delete"),
    ]
    await store.append(written)
    entries = await whole_log(store)
    assert [entry.offset for entry in entries] == [1, 2, 3, 4]
    assert [(entry.event, entry.data.encode()) for entry in entries] == [
        (o.event, o.data) for o in written
    ]
    assert await live_states(store) == folded(entries)


async def test_writers_at_once_make_one_dense_log(place: Place, make_store: MakeStore) -> None:
    stores = [make_store(*place) for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))

    async def write(number: int) -> None:
        for batch in range(10):
            await stores[number].append([op(f"{number}-{batch}-{n}") for n in range(5)])

    await asyncio.gather(*(write(number) for number in range(3)))
    entries = await whole_log(stores[0])
    assert [entry.offset for entry in entries] == list(range(1, 151))
    assert len({entry.data for entry in entries}) == 150
    assert [entry.ms for entry in entries] == sorted(entry.ms for entry in entries)
    assert await live_states(stores[1]) == folded(entries)


async def test_the_same_stamp_adds_nothing_twice(place: Place, make_store: MakeStore) -> None:
    store, other = make_store(*place), make_store(*place)
    await store.open()
    await other.open()
    batch = [op(str(n)) for n in range(10)]
    await store.append(batch[:6], BatchId("w", 0))
    await other.append(batch, BatchId("w", 0))
    await other.checkpoint()
    again = make_store(*place)
    await again.open()
    await again.append(batch, BatchId("w", 0))
    assert [entry.data.encode() for entry in await whole_log(store)] == [
        operation.data for operation in batch
    ]


async def test_the_follower_is_woken_by_another_agent(place: Place, make_store: MakeStore) -> None:
    store, other = make_store(*place), make_store(*place)
    await store.open()
    await other.open()
    await other.append([op("a")])
    assert [entry.offset for entry in await store.follow(0, 100, 5)] == [1]
    following = asyncio.create_task(store.follow(1, 100, 30))
    await asyncio.sleep(0)
    await other.append([op("b"), op("c")])
    first = await following
    rest = await store.follow(first[-1].offset, 100, 5) if len(first) < 2 else []
    assert [entry.offset for entry in first + rest] == [2, 3]
    assert await store.follow(3, 100, 0.05) == []


async def test_deleted_objects_that_cannot_be_counted_in_time_leave_the_other_figures(
    place: Place, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count_documents(*_: Any, **__: Any) -> int:
        raise ExecutionTimeout("operation exceeded time limit")

    monkeypatch.setattr(AsyncCollection, "count_documents", count_documents)
    store = make_store(*place)
    await store.open()
    await store.append([op("a"), op("a", "delete"), op("b")])
    await store.checkpoint()
    stats = await store.stats()
    assert (stats.operations, stats.states, stats.deleted) == (3, 2, None)
