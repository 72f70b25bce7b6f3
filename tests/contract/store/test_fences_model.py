"""Random polls, releases and appends of several holders in every store, against a model."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as some

from oplogd.errors import LeaseConflictError, LeaseNotFoundError
from oplogd.model.lease import Fence
from oplogd.store import Store
from oplogd.store.leases import Leases
from oplogd.store.topics import Placed, Refused, Topic
from tests.kits.models.properties import examples
from tests.kits.store.kits import Kit, Kits
from tests.kits.store.leasing import ORDERS, TTL_MS, fenced, fenced_messages, ids_of, request
from tests.kits.store.messages import named, payloads_of
from tests.kits.topics.memory_leases import MemoryLeases

HOLDERS = ["a", "b", "c"]
TOPICS = ["one", "two"]


class Poll(NamedTuple):
    holder: str
    refresh: bool
    note: str | None


class Release(NamedTuple):
    holder: str


class Publish(NamedTuple):
    """``batches``: holder and topic of each. The fence has the last term of that holder."""

    batches: list[tuple[str, str]]


class Send(NamedTuple):
    """Operations. ``batches``: the holder of each."""

    batches: list[str]


class Pass(NamedTuple):
    ms: int


HOLDER = some.sampled_from(HOLDERS)
CALLS = some.lists(
    some.one_of(
        some.builds(Poll, HOLDER, some.booleans(), some.sampled_from([None, "x", "y"])),
        some.builds(Release, HOLDER),
        some.builds(
            Publish,
            some.lists(some.tuples(HOLDER, some.sampled_from(TOPICS)), min_size=1, max_size=5),
        ),
        some.builds(Send, some.lists(HOLDER, min_size=1, max_size=5)),
        some.builds(Pass, some.sampled_from([1, TTL_MS // 2, TTL_MS, 2 * TTL_MS])),
    ),
    max_size=60,
)


class _World:
    """Makes each call on the store of its holder, and on the model."""

    def __init__(self, kit: Kit, stores: dict[str, Store], topics: dict[str, Topic]) -> None:
        self.kit = kit
        self.stores = stores
        self.topics = topics
        self.model = MemoryLeases(lambda: kit.clock.ms)
        self.known = dict.fromkeys(HOLDERS, 1)
        self.stored: dict[str, list[str]] = {name: [] for name in (*topics, "log")}
        self.number = 0

    async def make(self, call: NamedTuple) -> None:
        match call:
            case Poll(holder, refresh, note):
                polled = request(holder, refresh=refresh, note=note)
                lease = await self.stores[holder].leases.poll(polled)
                assert lease[:3] == (await self.model.poll(polled))[:3]
                assert lease.note == (await self.model.find(ORDERS)).note
                if lease.holder == holder:
                    self.known[holder] = lease.term
            case Release(holder):
                released = await self._release(self.stores[holder].leases, holder)
                assert released == await self._release(self.model, holder)
            case Publish(batches):
                await self._publish(batches)
            case Send(batches):
                await self._send(batches)
            case Pass(ms):
                self.kit.clock.ms += ms

    async def check(self) -> None:
        for name, topic in self.topics.items():
            found = await payloads_of(self.stores["a"].topics, topic)
            assert found == self.stored[name]
        assert await ids_of(self.stores["a"]) == self.stored["log"]
        for texts in self.stored.values():
            terms = [int(text.partition(" ")[0]) for text in texts]
            assert terms == sorted(terms), "an old term stands behind a later one"

    async def _release(self, leases: Leases, holder: str) -> object:
        try:
            return await leases.release(ORDERS, holder, self.known[holder])
        except (LeaseConflictError, LeaseNotFoundError) as error:
            return str(error)

    async def _publish(self, batches: Sequence[tuple[str, str]]) -> None:
        made = [(self._fence(holder), name, self._text(holder)) for holder, name in batches]
        outcomes = await self.stores[batches[0][0]].topics.append(
            [fenced_messages(self.topics[name], fence, text) for fence, name, text in made]
        )
        for (fence, name, text), outcome in zip(made, outcomes, strict=True):
            if self.model.holds(fence):
                self.stored[name].append(text)
                assert isinstance(outcome, Placed)
                assert outcome.first.offset == len(self.stored[name])
            else:
                assert outcome is Refused.STALE

    async def _send(self, batches: Sequence[str]) -> None:
        made = [(self._fence(holder), self._text(holder)) for holder in batches]
        results = await self.stores[batches[0]].append_fenced(
            [fenced(fence, text) for fence, text in made]
        )
        assert results == [self.model.holds(fence) for fence, _ in made]
        self.stored["log"] += [text for fence, text in made if self.model.holds(fence)]

    def _fence(self, holder: str) -> Fence:
        return Fence(ORDERS, self.known[holder])

    def _text(self, holder: str) -> str:
        self.number += 1
        return f"{self.known[holder]} {holder} {self.number}"


@given(CALLS)
@examples(0.2)
def test_in_every_log_the_terms_of_fenced_batches_never_fall(
    txn_kits: Kits, calls: list[NamedTuple]
) -> None:
    async def go() -> None:
        async with txn_kits() as kit:
            stores = {holder: await kit.open() for holder in HOLDERS}
            topics = {name: await stores["a"].topics.create(named(name), None) for name in TOPICS}
            world = _World(kit, stores, topics)
            for call in calls:
                await world.make(call)
            await world.check()

    asyncio.run(go())
