"""Consumers share the pages of a large commit: each is read once, and no event differs."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from oplogd.clock.ages import Ages
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark, Millis
from oplogd.model.message_id import MessageId, parse_message_id
from oplogd.store.topics import Topic, TopicEntry, TopicLog, TopicRecord
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases import record_pages
from oplogd.stream.phases.record_pages import IDLE_SECONDS, PAGE, RecordPages
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import (
    TTL,
    TopicWorld,
    last_id_of,
    message,
    next_chunk,
    read_all,
    told,
)
from tests.kits.stream.worlds import WatchedConsumer
from tests.kits.topics.memory import MemoryTopics
from tests.unit.stream.transactions.transacted_topics import COMMITTED, Transacting

PAGES = 3
LARGE = 2 * PAGE + 10


class SlowTopics(MemoryTopics):
    """``calls``: of ``expand``; the next one raises ``trouble_once``. Each waits for ``may``."""

    def __init__(self, clock: Callable[[], int], topic_ttl: int) -> None:
        super().__init__(clock, topic_ttl)
        self.calls = 0
        self.trouble_once: Exception | None = None
        self.may = asyncio.Event()
        self.may.set()

    def log(self, topic: Topic) -> TopicLog:
        return _SlowLog(self, super().log(topic))


class _SlowLog:
    def __init__(self, topics: SlowTopics, log: TopicLog) -> None:
        self._topics = topics
        self.read = log.read
        self.locate = log.locate
        self.decisions = log.decisions
        self._expand = log.expand

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        self._topics.calls += 1
        await self._topics.may.wait()
        trouble, self._topics.trouble_once = self._topics.trouble_once, None
        if trouble is not None:
            raise trouble
        return await self._expand(entry, after, limit)


class Readers:
    """A topic with one large commit, and its committed readers."""

    def __init__(self, world: TopicWorld, topic: Topic, mark: Mark) -> None:
        self.world = world
        self.topic = topic
        self.mark = mark

    @property
    def topics(self) -> SlowTopics:
        assert isinstance(self.world.topics, SlowTopics)
        return self.world.topics

    async def connect(self, last_id: str = "") -> StreamConsumer:
        """Connect right before the commit, or behind a record of it."""
        before = MessageId(self.mark.ms, self.mark.sequence)
        return await self.world.hub.connect_topic(
            self.topic,
            parse_message_id(last_id) if last_id else before,
            checkpoints=False,
            address="host:1",
            isolation=COMMITTED,
        )


@pytest.fixture
async def readers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Readers]:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    world = TopicWorld(SlowTopics)
    topic = await world.create()
    mark = await commit(world, topic, *NUMBERS)
    yield Readers(world, topic, mark)
    await world.close()


NUMBERS = [str(number) for number in range(LARGE)]


async def commit(world: TopicWorld, topic: Topic, *texts: str) -> Mark:
    writer = await Transacting(world).begin()
    await writer.write(topic, *texts)
    return (await writer.commit())[topic.log]


async def test_each_page_is_read_once_for_readers_at_one_time_and_one_after_another(
    readers: Readers,
) -> None:
    together = [await readers.connect() for _ in range(20)]
    found = await asyncio.gather(*map(read_all, together))
    assert {tuple(told(each)) for each in found} == {tuple(NUMBERS)}
    assert await read_all(await readers.connect()) == found[0]
    assert readers.topics.calls == PAGES
    assert {each.sent for each in together} == {LARGE}


async def test_a_live_reader_and_one_that_catches_up_share_the_pages(readers: Readers) -> None:
    world, topic = readers.world, readers.topic
    live = await world.hub.connect_topic(
        topic, None, checkpoints=False, address="host:1", isolation=COMMITTED
    )
    await commit(world, topic, *NUMBERS)
    await world.advance()
    assert told(await read_all(live)) == NUMBERS
    await read_all(await readers.connect())
    assert readers.topics.calls == 2 * PAGES
    oldest = await world.hub.connect_topic(
        topic, Millis(0), checkpoints=False, address="host:1", isolation=COMMITTED
    )
    assert told(await read_all(oldest)) == [*NUMBERS, *NUMBERS]
    assert readers.topics.calls == 2 * PAGES


async def test_a_reader_that_resumes_at_any_record_takes_the_rest_of_a_page_that_was_read(
    readers: Readers,
) -> None:
    blocks = (await read_all(await readers.connect())).split(b"\n\n")[:-1]
    for number in range(LARGE - 1):
        reader = await readers.connect(last_id_of(blocks[number]))
        chunk = await next_chunk(reader)
        rest = blocks[number + 1 :][: PAGE - (number + 1) % PAGE]
        assert chunk.split(b"\n\n")[:-1] == rest
        assert reader.sent == len(rest)
        readers.world.hub.disconnect(reader)
    assert readers.topics.calls == PAGES


async def test_a_reader_that_begins_between_pages_meets_those_of_others(readers: Readers) -> None:
    whole = await read_all(await readers.connect())
    blocks = whole.split(b"\n\n")[:-1]
    readers.world.clock.seconds += IDLE_SECONDS
    readers.world.hub.look(readers.world.clock.seconds)
    resumed = await readers.connect(last_id_of(blocks[6]))
    assert len(told(await next_chunk(resumed))) == PAGE
    assert await read_all(await readers.connect()) == whole
    assert (await read_all(resumed)).split(b"\n\n")[:-1] == blocks[PAGE + 7 :]
    # All at first; then the first page of each, and the rest once.
    assert readers.topics.calls == PAGES + 2 + PAGES - 1


async def test_a_record_that_expires_is_not_told_although_its_page_was_read(
    readers: Readers,
) -> None:
    world, topic = readers.world, readers.topic
    writer = await Transacting(world).begin()
    await writer.write(topic, *NUMBERS[:7], message("short", 1), *NUMBERS)
    readers.mark = (await writer.commit())[topic.log]
    early, late = await readers.connect(), await readers.connect()
    assert "short" in told(await read_all(early))
    last_id = last_id_of(await next_chunk(late))
    before = readers.topics.calls
    world.clock.ms += 1_000
    assert "short" in told(await read_all(await readers.connect()))
    assert readers.topics.calls == before
    world.clock.ms += 1
    after = await read_all(await readers.connect())
    assert told(after) == NUMBERS[:7] + NUMBERS
    assert told(await read_all(await readers.connect(last_id))) == NUMBERS[PAGE - 8 :]
    assert readers.topics.calls == before + 1
    assert (await readers.connect()).sent == 0


async def test_a_clock_that_comes_back_shows_the_records_again_that_a_page_lacks(
    readers: Readers,
) -> None:
    world, topic = readers.world, readers.topic
    writer = await Transacting(world).begin()
    await writer.write(topic, message("short", 1), *NUMBERS)
    readers.mark = (await writer.commit())[topic.log]
    world.clock.ms += 1_001
    assert told(await read_all(await readers.connect())) == NUMBERS
    world.clock.ms -= 1_001
    assert told(await read_all(await readers.connect())) == ["short", *NUMBERS]


async def test_pages_are_read_again_when_a_step_changes_the_ages(readers: Readers) -> None:
    ages = Ages()
    pages = RecordPages(asyncio.Semaphore(1), readers.world.clock.clock, lambda: ages)
    feed = await readers.world.feeds.open(readers.topic)
    entry = await pages.entry_at(feed.log, readers.mark)
    assert entry is not None
    for calls in (1, 1):
        await pages.records(feed.log, entry, -1)
        assert readers.topics.calls == calls
    ages = ages.stepped(1, 2)
    await pages.records(feed.log, entry, -1)
    assert readers.topics.calls == 2


async def test_a_commit_that_has_left_the_log_is_a_gap_although_its_pages_were_read(
    readers: Readers,
) -> None:
    world = readers.world
    ids = await read_all(await readers.connect())
    reader = await readers.connect(last_id_of(ids[: ids.index(b"\n\n") + 2]))
    world.clock.ms += TTL * 1000 + 1
    await world.publish(readers.topic, "next")
    await world.advance()
    assert told(await read_all(reader)) == ["reset", "next"]


async def test_a_topic_created_again_has_no_page_of_the_one_before(readers: Readers) -> None:
    world = readers.world
    await read_all(await readers.connect())
    await world.topics.delete(readers.topic.name)
    again = await world.create(readers.topic.name.topic)
    mark = await commit(world, again, *reversed(NUMBERS))
    assert told(await read_all(await Readers(world, again, mark).connect())) == NUMBERS[::-1]


async def test_a_reader_that_leaves_during_a_read_does_not_end_it_for_the_others(
    readers: Readers,
) -> None:
    readers.topics.may.clear()
    first, second = await readers.connect(), await readers.connect()
    reading = [asyncio.ensure_future(awaited(each)) for each in (first, second)]
    while not readers.topics.calls:
        await asyncio.sleep(0)
    reading[0].cancel()
    readers.world.hub.disconnect(first)
    await asyncio.sleep(0)
    readers.topics.may.set()
    assert told(await reading[1]) == NUMBERS[:PAGE]
    assert readers.topics.calls == 1


async def test_the_last_reader_that_leaves_ends_the_read(readers: Readers) -> None:
    readers.topics.may.clear()
    reader = await readers.connect()
    reading = asyncio.ensure_future(awaited(reader))
    while not readers.topics.calls:
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks()
    reading.cancel()
    readers.world.hub.disconnect(reader)
    await asyncio.wait(tasks - {asyncio.current_task()})
    assert reader.subscription.read_slots.entries._value == 2


async def test_readers_that_wait_for_one_read_get_its_error_and_ask_again(
    readers: Readers,
) -> None:
    readers.topics.trouble_once = StoreUnavailableError("away")
    waiting = [await readers.connect() for _ in range(3)]
    failed = await asyncio.gather(*(awaited(each) for each in waiting), return_exceptions=True)
    assert [str(each) for each in failed] == ["away"] * 3
    assert [told(await read_all(each)) for each in waiting] == [NUMBERS] * 3
    assert readers.topics.calls == 1 + PAGES


async def test_pages_are_bounded_in_bytes_and_leave_when_no_reader_uses_them(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, pages = readers.world, readers.world.hub.pages
    await read_all(await readers.connect())
    size = pages.bytes
    monkeypatch.setattr(record_pages, "MAX_BYTES", size - 1)
    world.clock.seconds += 1
    for _ in range(3):
        mark = await commit(world, readers.topic, *NUMBERS)
        await read_all(await Readers(world, readers.topic, mark).connect())
        assert size // 2 < pages.bytes < size
    world.clock.seconds += IDLE_SECONDS - 1
    world.hub.look(world.clock.seconds)
    assert pages.bytes > 0
    world.clock.seconds += 1
    world.hub.look(world.clock.seconds)
    assert pages.bytes == 0
