"""The guarded time in a file: its tables, and entries whose stamps are ahead."""

from pathlib import Path

from oplogd.store.sqlite import MIGRATIONS, SqliteStore
from oplogd.store.sqlite.log import clock_rows
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.topics import MessageBatch, Topic
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.store.messages import NAME, entries_of, messages, payloads_of, publish
from tests.kits.store.sqlite_files import count, create_at_version, direct, number, opened
from tests.kits.store.transacting import begin, group_log, record, write

YEARS = 10 * 365 * 86_400


async def stand(store: SqliteStore, clock: VirtualClock, seconds: int) -> None:
    store.clock.now_ms()
    clock.move(seconds)
    store.clock.now_ms()


async def ahead(store: SqliteStore, clock: VirtualClock, ttl: int) -> Topic:
    """Return a topic whose head is years ahead of the clock."""
    topic = await store.topics.create(NAME, ttl)
    clock.jump(YEARS)
    await stand(store, clock, 700)
    await publish(store.topics, topic, "wrong")
    clock.jump(-YEARS)
    await stand(store, clock, 700)
    return topic


async def test_a_file_of_the_agent_before_keeps_its_version_and_gets_the_tables(path: Path) -> None:
    create_at_version(path, len(MIGRATIONS))
    with direct(path) as db:
        assert clock_rows.find(db) is None
    clock = VirtualClock()
    async with opened(path, clock) as store:
        await store.append(numbered(3))
        await store.keep_clock()
    with direct(path) as db:
        kept = clock_rows.find(db)
    assert kept is not None
    assert kept[:5] == (START_MS, START_MS, START_MS, 0, 0)
    assert number(path, "PRAGMA user_version") == len(MIGRATIONS)


async def test_an_append_that_stood_for_long_after_it_read_the_clock_is_not_expired(
    path: Path, no_fsync: None
) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 30)
        clock.move(100)
        await publish(store.topics, topic, "of another agent")
        batch = MessageBatch(topic.log, messages(["a"], ttl=30))
        await store._writer.run(lambda db: topic_entries.append(db, [batch], START_MS))
        assert await payloads_of(store.topics, topic) == ["of another agent", "a"]
        assert count(path, "dated") == 0
        clock.move(31)
        assert await payloads_of(store.topics, topic) == []


async def test_what_is_known_of_the_time_of_writing_leaves_with_the_entries(
    path: Path, no_fsync: None
) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await ahead(store, clock, 5)
        for each in range(3):
            await publish(store.topics, topic, each)
        assert count(path, "dated") == 3
        clock.move(3600)
        for _ in range(2):
            await store.topics.sweep()
        assert (count(path, "dated"), count(path, "entries")) == (0, 0)
        await publish(store.topics, topic, "a")
        await store.topics.delete(NAME)
        await store.topics.sweep()
        assert (count(path, "dated"), count(path, "topics")) == (0, 0)


async def test_records_whose_stamps_are_ahead_stay_twenty_minutes_longer_and_then_leave(
    path: Path, no_fsync: None
) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await ahead(store, clock, 5)
        await group_log(store)
        begun = await begin(store, timeout_ms=60_000)
        await write(store, begun, record(0, topic, "a"))
        await store.transactions.commit(begun.id, 1)
        await publish(store.topics, topic, "b")
        clock.move(6)
        await store.topics.sweep()
        assert await entries_of(store.topics.log(topic)) == []
        kinds = f"SELECT count(*) FROM entries WHERE place >> 40 = {topic.log}"
        assert number(path, kinds) == 2
        clock.move(20 * 60)
        await store.topics.sweep()
        assert number(path, kinds) == 0
        assert number(path, f"SELECT count(*) FROM records WHERE log = {topic.log}") == 0


async def test_messages_of_an_agent_that_keeps_no_time_of_writing_go_by_the_next_one(
    path: Path, no_fsync: None
) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await ahead(store, clock, 5)
        await publish(store.topics, topic, "a", ttl=2)
        with direct(path) as db:
            db.execute("DELETE FROM dated")
        clock.move(1)
        await publish(store.topics, topic, "b")
        clock.move(2)
        assert (await payloads_of(store.topics, topic))[-2:] == ["a", "b"]
        clock.move(1)
        assert (await payloads_of(store.topics, topic))[-2:] == [None, "b"]
        clock.move(3)
        assert await payloads_of(store.topics, topic) == []
