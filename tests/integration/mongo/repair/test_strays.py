"""Strays before the log: none counts as the oldest entry, and no writer appends behind one."""

from pymongo.database import Database

from oplogd.clock import Clock
from oplogd.store.mongo.link.layout import Document
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import document, offsets, op
from tests.kits.mongo.wire import PAUSE_SECONDS


async def test_an_agent_that_was_idle_does_not_go_on_behind_a_stray(
    database: Database[Document],
    plain_url: str,
    make_store: MakeStore,
) -> None:
    own = VirtualClock()
    store = make_store(plain_url, "plain", lease=60, clock=Clock(boot=own.monotonic))
    await store.open()
    await store.append([op(str(number)) for number in range(1, 6)])
    await store.checkpoint()
    own.move(2 * PAUSE_SECONDS)
    log = database["oplog_ops"]
    log.delete_many({})
    log.insert_many([document(6), *(document(n) for n in range(100, 121))])
    assert [entry.offset for entry in await store.read(5, 10)] == [6]
    bounds = await store.locate(6)
    assert bounds.oldest is not None
    assert (bounds.oldest.offset, bounds.head.offset, bounds.at_ms) == (100, 120, None)
    await store.append([op("last")])
    assert offsets(database) == [6, *range(100, 122)]


SHAPES = [
    ([], range(1, 2)),
    ([], range(7, 8)),
    ([], range(1, 400)),
    ([5], range(7, 8)),
    ([5], range(100, 400)),
    ([98], range(100, 400)),
    ([*range(1, 41)], range(100, 400)),
    ([5, 6, 7, 50, 51, 98], range(100, 400)),
    ([1, 1000, 5000], range(100_000, 100_300)),
    ([*range(90, 99, 2)], range(100, 117)),
]


async def test_the_oldest_entry_is_the_first_behind_the_last_gap(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    log = database["oplog_ops"]
    opened = make_store(plain_url, "plain", lease=60)
    await opened.open()
    await opened.projection.stop()  # it keeps the lease
    for turn, (strays, genuine) in enumerate(SHAPES):
        log.delete_many({})
        log.insert_many([document(n, ms=1_700_000_000_000 + turn) for n in (*strays, *genuine)])
        fresh = make_store(plain_url, "plain", lease=60)
        await fresh.open()
        for store in (opened, fresh):  # one of them remembers another oldest entry
            bounds = await store.locate()
            assert bounds.oldest is not None
            assert (bounds.oldest.offset, bounds.head.offset) == (genuine[0], genuine[-1]), strays
            assert (await store.stats()).operations == len(genuine)
