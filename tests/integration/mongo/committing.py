"""Transactions for the tests of MongoDB: records to write, steps to stop at, entries to compare."""

import asyncio
from collections.abc import Sequence
from typing import Any

from oplogd.model.message import of_payload
from oplogd.model.names import TopicName
from oplogd.model.operation import Operation
from oplogd.model.transaction import Record, decode_marker
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.topics import EntryKind, Topic
from oplogd.store.transactions import Commit, NewTransaction, RecordLimits, Transaction
from tests.integration.mongo.topics.topics import entries_of
from tests.kits.mongo.fixtures import MakeStore

LIMITS = RecordLimits()
TIMEOUT_MS = 60_000
_COMMIT_LOG = TopicName("system", "_txn.default")


class KilledError(Exception):
    """Ends a request after a step, as if its agent were killed there."""


class Steps:
    """Stops a store's transactions after a step: see ``Timing.at_step``.

    ``kill_at``: a step and how many of them are done; None: none. ``hold_at``: the step at which
    the next request waits until ``go_on`` is set. ``names``: the steps done.
    """

    def __init__(self) -> None:
        self.kill_at: tuple[str, int] | None = None
        self.hold_at: str | None = None
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()
        self.names: list[str] = []

    async def __call__(self, name: str) -> None:
        self.names.append(name)
        if self.kill_at is not None and self.kill_at[0] == name:
            self.kill_at = name, self.kill_at[1] - 1
            if self.kill_at[1] == 0:
                raise KilledError
        if self.hold_at == name:
            self.hold_at = None
            self.held.set()
            await self.go_on.wait()


async def stepping(make_store: MakeStore, url: str, steps: Steps, **options: Any) -> MongoStore:
    """Return an open store that writes the entries of a commit one by one."""
    timing = Timing(at_step=steps, topics_per_step=1)
    return await opened(make_store, url, timing=timing, **options)


async def opened(make_store: MakeStore, url: str, **options: Any) -> MongoStore:
    store = make_store(url, "plain", **{"lease": 60, **options})
    await store.open()
    return store


async def topics_of(store: MongoStore, *names: str) -> list[Topic]:
    """Create topics, and the commit log of the default group."""
    await store.topics.create(_COMMIT_LOG, None)
    return [await store.topics.create(TopicName("ns", name), None) for name in names]


async def commit_log(store: MongoStore) -> Topic:
    found = await store.topics.find(_COMMIT_LOG)
    assert found is not None
    return found


async def begin(
    store: MongoStore, *, topic: Topic | None = None, timeout_ms: int = TIMEOUT_MS
) -> Transaction:
    """Begin a transaction of the default group, or one of a topic."""
    if topic is not None:
        new = NewTransaction(topic.log, None, topic.log, timeout_ms)
    else:
        new = NewTransaction((await commit_log(store)).log, "default", None, timeout_ms)
    return await store.transactions.begin(new)


def record(lsn: int, topic: Topic, payload: str) -> Record:
    return Record(lsn, topic.log, of_payload(payload.encode()), f"{topic.name} {payload}")


def operation(lsn: int, id_: str) -> Record:
    data = f'{{"timestamp":"2026-01-01T00:00:00.000Z","parents":[],"type":"t","id":"{id_}"}}'
    return Record(lsn, 0, Operation("insert", f"t/{id_}", data.encode()), f"oplog {id_}")


async def write(store: MongoStore, txn: Transaction, *records: Record) -> Transaction:
    return await store.transactions.write(txn.id, records, LIMITS)


async def written(store: MongoStore, records: Sequence[Record]) -> Transaction:
    """Begin a transaction and write its records."""
    return await write(store, await begin(store), *records)


async def kinds_of(store: MongoStore, topic: Topic) -> list[str]:
    return [str(each.event) for each in await entries_of(store.topics, topic)]


async def ends_of(store: MongoStore, topic: Topic) -> list[tuple[str, str]]:
    """Return kind and transaction of the COMMIT and ABORT entries of a topic."""
    return [
        (str(each.event), decode_marker(each.data).txn)
        for each in await entries_of(store.topics, topic)
        if each.event in (EntryKind.COMMIT, EntryKind.ABORT)
    ]


async def committed(store: MongoStore, topic: Topic) -> list[str]:
    """Return the payloads that a committed reader sees."""
    found = []
    for each in await entries_of(store.topics, topic):
        if each.event == EntryKind.COMMIT:
            records = await store.topics.log(topic).expand(each, -1, 1_000)
            found += [record.data for record in records]
        elif each.event == EntryKind.MESSAGE:
            found.append(each.data)
    return [data.removeprefix('{"payload":"').removesuffix('"}') for data in found]


async def events_of(store: MongoStore) -> list[tuple[str, str]]:
    """Return event and transaction of each record of the default group's commit log."""
    found = []
    for each in await entries_of(store.topics, await commit_log(store)):
        event = each.data.split('\\"')[3]
        found.append((event, each.data.rpartition('"key":"')[2].removesuffix('"}')))
    return found


def same(first: Commit, second: Commit) -> bool:
    return first == second and list(first.record_ids()) == list(second.record_ids())
