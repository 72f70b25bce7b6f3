"""Appending with a fence to a topic and to the oplog, for tests that hold for both."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from oplogd.errors import StoreUnavailableError
from oplogd.model.lease import Fence
from oplogd.store import FencedBatch
from oplogd.store.leases import Lease, LeaseRequest
from oplogd.store.mongo import MongoStore
from oplogd.store.topics import Placed, Refused, Topic
from tests.integration.mongo.topics.topics import NAME, batch, inserts_entries, payloads_of
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op, whole_log
from tests.kits.mongo.wire import Command, Moment, Wire, inserts

LEASE = "orders"
TTL_MS = 10_000


async def poll(
    store: MongoStore, holder: str, name: str = LEASE, *, refresh: bool = False
) -> Lease:
    return await store.leases.poll(LeaseRequest(name, holder, TTL_MS, refresh=refresh))


async def new_term(store: MongoStore) -> int:
    """Take the next term, as another leader that has the same holder."""
    return (await poll(store, "leader", refresh=True)).term


def request(term: int, *ids: str) -> FencedBatch:
    return FencedBatch([op(each) for each in ids], Fence(LEASE, term))


class Target:
    """A log to append to with a fence: a topic, or the oplog if ``topic`` is None."""

    def __init__(self, topic: Topic | None) -> None:
        self.topic = topic

    def is_insert(self, command: Command) -> bool:
        return inserts(command) if self.topic is None else inserts_entries(command)

    async def append(self, store: MongoStore, term: int, *ids: str) -> bool:
        """Return whether the fence held."""
        if self.topic is None:
            (held,) = await store.append_fenced([request(term, *ids)])
            return held
        fenced = batch(self.topic, *ids)._replace(fence=Fence(LEASE, term))
        (outcome,) = await store.topics.append([fenced])
        assert isinstance(outcome, Placed) or outcome is Refused.STALE
        return isinstance(outcome, Placed)

    async def ids(self, store: MongoStore) -> list[str]:
        """Return the content of the log, in order."""
        if self.topic is not None:
            return await payloads_of(store.topics, self.topic)
        return [each.data.rpartition('"id":"')[2][:-2] for each in await whole_log(store)]


class Schedule:
    """Two leaders: the commands of ``old`` can be held. ``term``: the old leader's."""

    def __init__(self, wire: Wire, target: Target, old: MongoStore, new: MongoStore) -> None:
        self.wire = wire
        self.target = target
        self.old = old
        self.new = new
        self.term = 0

    async def held_between_judgement_and_insert(
        self,
        *ids: str,
        then: Callable[[], Awaitable[None]],
        moment: Moment = "before",
        is_cut: bool = False,
    ) -> bool | str:
        """Append as the old leader, and do something before its insert reaches the server.

        ``moment`` "after": before its answer reaches the leader. ``is_cut``: the leader loses its
        connection. Return whether the fence held, or the text of the error.
        """
        held = self.wire.hold(self.target.is_insert, moment)
        appending = asyncio.create_task(self.target.append(self.old, self.term, *ids))
        await asyncio.to_thread(held.wait)
        await then()
        result: bool | str | None = None
        if is_cut:
            held.cut()
            if moment == "before":
                result = await _result(appending)
        await asyncio.to_thread(held.release)
        return await _result(appending) if result is None else result


async def schedule(name: str, wire: Wire, plain_url: str, make_store: MakeStore) -> Schedule:
    """Return two open stores, a log with one entry, and a leader with a term."""
    new, old = (make_store(url, "plain", lease=60) for url in (plain_url, wire.url()))
    await new.open()
    await old.open()
    target = Target(await new.topics.create(NAME, None) if name == "topic" else None)
    made = Schedule(wire, target, old, new)
    made.term = await new_term(old)
    assert await target.append(old, made.term, "first")
    return made


def insert_at_most(store: MongoStore, entries: int) -> None:
    """Let one insert carry so many entries."""
    store.link.quirks = replace(store.link.quirks, inserts_per_command=entries)


async def _result(appending: "asyncio.Task[bool]") -> bool | str:
    try:
        return await appending
    except StoreUnavailableError as error:
        return str(error)
