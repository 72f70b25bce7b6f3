"""Three agents whose requests are killed at random steps, and sent again to any of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from oplogd.model.message import decode_content
from oplogd.model.operation import Operation
from oplogd.model.transaction import Record
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.transactions import Commit, Transaction
from tests.integration.mongo.committing import (
    KilledError,
    begin,
    committed,
    ends_of,
    events_of,
    opened,
    operation,
    record,
    topics_of,
    write,
)
from tests.kits.models import properties
from tests.kits.mongo.fixtures import MakeStore

TRANSACTIONS = 40
TOGETHER = 8
T = TypeVar("T")


class Ended(NamedTuple):
    """A transaction that was ended, with its records."""

    is_committed: bool
    records: list[Record]


async def test_transactions_of_agents_that_are_killed_at_any_step_end_whole_and_in_one_order(
    plain_url: str, make_store: MakeStore
) -> None:
    chance = properties.chance(13)
    kills = 0

    async def step(name: str) -> None:
        nonlocal kills
        if chance.random() < 0.08:
            kills += 1
            raise KilledError(name)
        if chance.random() < 0.2:
            await asyncio.sleep(0)

    stores = [
        await opened(make_store, plain_url, timing=Timing(at_step=step, topics_per_step=topics))
        for topics in (1, 2, 1_000)
    ]
    topics = await topics_of(stores[0], *"abcd")

    async def send(request: Callable[[MongoStore], Awaitable[T]]) -> T:
        while True:
            try:
                return await request(chance.choice(stores))
            except KilledError:
                continue

    async def transact(number: int) -> tuple[str, Ended]:
        txn = await send(begin)
        count = chance.randint(0, 5)
        records = [
            record(lsn, chance.choice(topics), f"{number}.{lsn}")
            if chance.random() < 0.8
            else operation(lsn, f"{number}.{lsn}")
            for lsn in range(count)
        ]
        is_committed = chance.random() < 0.75

        async def end(store: MongoStore) -> Commit | Transaction:
            if is_committed:
                return await store.transactions.commit(txn.id, count)
            return await store.transactions.abort(txn.id)

        for part in filter(None, (records[: count // 2], records)):
            await asyncio.gather(
                *(
                    send(lambda store, part=part: write(store, txn, *part))  # type: ignore[misc]
                    for _ in range(chance.choice((1, 2)))
                )
            )
        first, second = await asyncio.gather(send(end), send(end))
        assert first == second
        return str(txn.id), Ended(is_committed, records)

    turns = asyncio.Semaphore(TOGETHER)

    async def in_turn(number: int) -> tuple[str, Ended]:
        async with turns:
            return await transact(number)

    ended = dict(await asyncio.gather(*map(in_turn, range(TRANSACTIONS))))
    assert kills > 0
    order = [id_ for event, id_ in await events_of(stores[0]) if event == "commit"]
    assert sorted(order) == sorted(id_ for id_, each in ended.items() if each.is_committed)
    for topic in topics:
        ends = await ends_of(stores[0], topic)
        assert len(set(ends)) == len(ends)
        wanted = {
            ("commit" if each.is_committed else "abort", id_)
            for id_, each in ended.items()
            if any(found.log == topic.log for found in each.records)
        }
        assert wanted <= set(ends), "each touched topic has the end of the transaction"
        commits = [id_ for event, id_ in ends if event == "commit"]
        assert commits == [id_ for id_ in order if id_ in set(commits)]
        assert await committed(stores[1], topic) == [
            decode_content(found.content.data.decode()).payload
            for id_ in order
            for found in ended[id_].records
            if found.log == topic.log
        ]
    keys = [
        found.content.key
        for id_ in order
        for found in ended[id_].records
        if isinstance(found.content, Operation)
    ]
    entries = await stores[2].read(0, 1_000)
    assert [f'"id":"{key[2:]}"' in each.data for key, each in zip(keys, entries, strict=True)] == [
        True
    ] * len(keys)
