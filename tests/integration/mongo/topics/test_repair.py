"""The repair of stamps that is cut off after any of its commands: its repetition does the rest."""

import pytest
from pymongo import AsyncMongoClient

from oplogd.model.message_id import stamp
from oplogd.model.pointer import Decision
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.topics.ahead import AheadTopics
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.heads import TopicHeads
from tests.integration.mongo.log.test_cuts import MOST_COMMANDS, READS, restore, saved
from tests.integration.mongo.topics.topics import NAME, entries_of, place
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.proxies.mongo import cut_off
from tests.kits.store.pointing import TEPHRA, publish_under
from tests.kits.store.stepping import DAY, YEARS, stepped, swept


async def prepare(url: str, make_store: MakeStore, clock: VirtualClock, *, is_swept: bool) -> None:
    """Take back a message in the year of a wrong clock, by force. ``is_swept``: all are gone."""
    store = make_store(url, "plain")
    await store.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    await place(store.topics, topic, "right")
    await stepped(clock, [store], YEARS)
    await place(store.topics, topic, *"abc")
    await publish_under(store, topic, TEPHRA, "taken")
    await store.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    await store.pointers.rollback(topic.log, TEPHRA, None, force=True)
    await place(store.topics, topic, "d")
    if is_swept:
        await store.topics.change(NAME, 2)
        clock.ms += 1_201_000
        await swept(store)
        assert await entries_of(store.topics, topic) == []
    await store.close()
    clock.jump(-YEARS)


async def repair(url: str, clock: VirtualClock) -> None:
    link = Link(url, clock=clock.dates)
    try:
        await link.greet()
        catalogue = Catalogue(link)
        await AheadTopics(link, catalogue, TopicHeads(link, catalogue, 0.0)).repair()
    finally:
        await link.close()


@pytest.mark.parametrize("is_swept", [False, True], ids=["still there", "swept"])
async def test_a_repair_that_is_cut_off_after_any_command_is_completed(
    plain_url: str, make_store: MakeStore, clock: VirtualClock, is_swept: bool
) -> None:
    await prepare(plain_url, make_store, clock, is_swept=is_swept)
    async with AsyncMongoClient[Document](plain_url) as client:
        database = client.get_default_database()
        prepared = await saved(database)

        async def run(commands: int) -> list[str]:
            begun = clock.ms
            names = await cut_off(
                plain_url,
                commands,
                lambda: restore(database, prepared),
                lambda address: repair(address, clock),
            )
            clock.ms += 10
            await repair(plain_url, clock)
            topic = await database.oplog_topics.find_one({"_id": str(NAME)})
            assert topic is not None
            assert stamp(begun, 0) <= topic["purged"] < stamp(clock.ms + 1, 0)
            assert topic["floor_stamp"] <= stamp(clock.ms, 0)
            entries = (
                await database.oplog_entries.find({"q": {"$exists": True}}).sort("_id", 1).to_list()
            )
            stamps = [stamp(each["ts"], each["q"]) for each in entries]
            assert stamps == sorted(set(stamps))
            assert all(each < stamp(clock.ms + 1, 0) for each in stamps)
            return names

        whole = await run(MOST_COMMANDS)
        assert len(whole) < MOST_COMMANDS
        for commands, name in enumerate(whole, 1):
            if name not in READS:
                assert await run(commands) == whole[:commands]
