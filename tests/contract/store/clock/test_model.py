"""Random steps of the wall clock, against a model that knows the true time."""

import asyncio

from hypothesis import given
from hypothesis import strategies as some

from oplogd.clock.rule import FAR_MS
from oplogd.model.transaction import State
from oplogd.store import Store
from tests.kits.models.properties import examples
from tests.kits.store.kits import Kit, Kits
from tests.kits.store.messages import NAME, entries_of, publish
from tests.kits.store.stepping import DAY, HOUR, stand, swept
from tests.kits.store.transacting import begin, group_log

TTL = 2 * HOUR
FAR = FAR_MS // 1000
TIMEOUT_MS = 900_000

# How far the wall clock is off, in seconds.
Offset = some.sampled_from([0, 0, 6, -6, HOUR, -HOUR, 8 * DAY, -8 * DAY])
Step = some.one_of(
    some.tuples(some.just("set"), Offset),
    some.tuples(some.just("stand"), some.sampled_from([1, 30, 61, 601])),
    some.tuples(some.just("restart"), some.sampled_from([0, 30, 300, 700])),
    some.tuples(some.just("publish"), some.just(0)),
    some.tuples(some.just("publish"), some.just(TTL // 2)),
    some.tuples(some.just("sweep"), some.just(0)),
    some.tuples(some.just("begin"), some.just(0)),
)


class Model:
    """``due``: true time in ms until which a message must stay, by payload.

    It is less only for messages from before a long stop, which is as long as the clock tells.
    """

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.offset = 0
        self.stamp = 0
        self.due: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.begun: dict[int, int] = {}
        self.before_restart: set[str] = set()
        self.excused: set[str] = set()

    @property
    def true_ms(self) -> int:
        return self.kit.clock.ms - 1000 * self.offset

    def set_wall(self, offset: int) -> None:
        self.kit.clock.jump(offset - self.offset)
        self.offset = offset

    def published(self, payload: str, ttl: int) -> None:
        self.stamp = max(self.stamp, self.kit.clock.ms)
        self.due[payload] = self.true_ms + 1000 * ttl
        self.ends[payload] = self.stamp + 1000 * ttl

    def restarted(self) -> None:
        self.before_restart = set(self.due)

    def swept(self) -> None:
        self.excused |= {
            each for each in self.before_restart if self.ends[each] < self.kit.clock.ms
        }

    def must_stay(self) -> set[str]:
        return {each for each, due in self.due.items() if due > self.true_ms} - self.excused


async def compare_transactions(model: Model, store: Store) -> None:
    """No transaction ends before its time-out has passed."""
    await store.transactions.keep()
    for id_, begun in model.begun.items():
        if model.true_ms - begun <= TIMEOUT_MS:
            assert (await store.transactions.find(id_)).state is State.OPEN


async def run(kit: Kit, steps: list[tuple[str, int]]) -> None:
    model = Model(kit)
    store = await kit.open()
    topic = await store.topics.create(NAME, TTL)
    await group_log(store)
    await store.keep_clock()
    for number, (name, value) in enumerate(steps):
        if name == "set":
            model.set_wall(value)
        elif name == "stand":
            await stand(kit, store, value)
        elif name == "restart":
            await kit.close()
            kit.clock.ms += 1000 * value
            store = await kit.open()
            if value > FAR:
                model.restarted()
        elif name == "publish":
            await publish(store.topics, topic, str(number), ttl=value or None)
            model.published(str(number), value or TTL)
        elif name == "begin":
            model.begun[(await begin(store, timeout_ms=TIMEOUT_MS)).id] = model.true_ms
        if name in ("sweep", "restart"):
            model.swept()
            await swept(store)
        await store.keep_clock()
        await compare_transactions(model, store)
    model.set_wall(0)
    await stand(kit, store, 61)
    await stand(kit, store, 601)
    model.swept()
    await swept(store)
    await compare_transactions(model, store)
    entries = await entries_of(store.topics.log(topic))
    assert model.must_stay() <= {each.data.split('"')[3] for each in entries if each.data}
    await publish(store.topics, topic, "last")
    await stand(kit, store, TTL + HOUR)
    for _ in range(2):
        await swept(store)
    left = await entries_of(store.topics.log(topic))
    assert [each for each in left if each.data] == []
    await store.transactions.keep()
    assert await store.transactions.select(State.OPEN, None, 20) == []


@given(some.lists(Step, min_size=3, max_size=14))
@examples(0.2)
def test_nothing_leaves_early_and_all_leaves_at_last(
    topic_kits: Kits, steps: list[tuple[str, int]]
) -> None:
    async def go() -> None:
        async with topic_kits() as kit:
            await run(kit, steps)

    asyncio.run(go())
