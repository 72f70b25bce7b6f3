"""Topics in SQLite files: schema, statements, transactions."""

import asyncio
import contextlib
import threading
from functools import partial
from pathlib import Path

import pytest

from oplogd.clock.ages import Present
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.store.sqlite import MIGRATIONS
from oplogd.store.sqlite.file import parts as sqlite_parts
from oplogd.store.sqlite.topics import catalogue, news
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.upkeep import sweep
from oplogd.store.topics import DEFAULT_TTL, MessageBatch, Placed, Refused
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.messages import (
    NAME,
    entries_of,
    message,
    messages,
    named,
    payloads_of,
    publish,
    publish_all,
)
from tests.kits.store.sqlite_files import (
    count,
    create_at_version,
    direct,
    open_at_version,
    opened,
    rows,
    steps_of,
    whole,
)

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")

# The schema versions before topics.
EARLIER = [1, 2]


# --- Schema ---


START = Present(START_MS, START_MS)


@pytest.mark.parametrize("version", EARLIER)
async def test_a_file_of_an_earlier_schema_gets_topics_and_keeps_its_log(
    path: Path, monkeypatch: Patch, version: int
) -> None:
    made = numbered(20)
    create_at_version(path, version)
    with monkeypatch.context() as patch:
        open_at_version(patch, version)
        async with opened(path) as older:
            await older.append(made)
    assert rows(path, "PRAGMA user_version") == [(version,)]
    for payload in ("a", "b"):
        async with opened(path) as store:
            assert await store.topics.default_ttl() == DEFAULT_TTL
            topic = await store.topics.find(NAME) or await store.topics.create(NAME, None)
            await publish(store.topics, topic, payload)
            await whole(store, made)
    assert rows(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    async with opened(path) as store:
        assert await payloads_of(store.topics, topic) == ["a", "b"]


async def test_an_agent_of_the_schema_before_goes_on_with_a_file_that_it_has_open(
    path: Path, monkeypatch: Patch
) -> None:
    made = numbered(6)
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            open_at_version(patch, 2)
            older = await stack.enter_async_context(opened(path))
            await older.append(made[:2])
        assert rows(path, "PRAGMA user_version") == [(2,)]
        newer = await stack.enter_async_context(opened(path))
        topic = await newer.topics.create(NAME, None)
        for number in (2, 4):
            await older.append(made[number : number + 1])
            await newer.append(made[number + 1 : number + 2])
            await publish(newer.topics, topic, number)
        await whole(newer, made)
        assert await payloads_of(newer.topics, topic) == ["2", "4"]


async def test_a_new_epoch_leaves_the_topics_as_they_are(path: Path) -> None:
    async with opened(path) as store, opened(path) as other:
        topic = await store.topics.create(NAME, None)
        await publish(store.topics, topic, "a")
        await store.append(numbered(3))
        await store.new_epoch()
        await publish(store.topics, topic, "b")
        await publish(other.topics, topic, "c")
        await store.append(numbered(1))
        assert await payloads_of(other.topics, topic) == ["a", "b", "c"]


async def test_topics_without_messages_cost_a_row_each_and_nothing_else(path: Path) -> None:
    async with opened(path) as store:
        for number in range(300):
            await store.topics.create(named(str(number)), None)
        assert count(path, "topics") == 300
        assert count(path, "entries") == 0
        assert count(path, "logs") == 1


# --- Append ---


@pytest.mark.parametrize(
    "count_", [3, 2 * sqlite_parts.STATEMENT_OPERATIONS], ids=["one statement", "several"]
)
async def test_an_append_that_was_interrupted_leaves_nothing(path: Path, count_: int) -> None:
    async with opened(path) as store:
        one = await store.topics.create(named("one"), None)
        two = await store.topics.create(named("two"), None)
        await publish(store.topics, one, "a")
        before = await store.topics.log(one).locate()
        broken = Message(b"{not json")
        with pytest.raises(StoreUnavailableError):
            await store.topics.append(
                [
                    MessageBatch(one.log, messages(range(count_))),
                    MessageBatch(two.log, [message("b"), broken]),
                ]
            )
        assert await payloads_of(store.topics, one) == ["a"]
        assert await payloads_of(store.topics, two) == []
        assert (await store.topics.log(one).locate())[:3] == before[:3]
        assert (await publish(store.topics, one, "c")).first.offset == 2
        assert (await publish(store.topics, two, "d")).first.offset == 1


async def test_batches_of_several_statements_are_numbered_without_a_hole(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sqlite_parts, "STATEMENT_OPERATIONS", 7)
    monkeypatch.setattr(sqlite_parts, "STATEMENT_BYTES", 200)
    async with opened(path, VirtualClock()) as store:
        made = [await store.topics.create(named(str(number)), None) for number in range(3)]
        await store.topics.delete(made[2].name)
        batches = [
            MessageBatch(made[number % 3].log, messages(["p" * (number * 13 % 90)] * (number + 1)))
            for number in range(12)
        ]
        outcomes = await store.topics.append(batches)
        assert [outcome == Refused.DELETED for outcome in outcomes] == [False, False, True] * 4
        for index, topic in enumerate(made[:2]):
            entries = await entries_of(store.topics.log(topic))
            sent = [each for batch in batches[index::3] for each in batch.messages]
            assert [entry.data.encode() for entry in entries] == [each.data for each in sent]
            assert [(entry.offset, entry.ms, entry.sequence) for entry in entries] == [
                (number, START_MS, number) for number in range(1, len(sent) + 1)
            ]
            first = 1
            for batch, outcome in zip(batches[index::3], outcomes[index::3], strict=True):
                last = first + len(batch.messages) - 1
                assert outcome == Placed(Mark(first, START_MS, first), Mark(last, START_MS, last))
                first = last + 1


async def test_a_batch_larger_than_a_statement_is_appended_completely(path: Path) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        made = [message("p" * (1 << 20)) for _ in range(3)] + messages(range(12_000))
        placed = await publish_all(store.topics, topic, made)
        assert (placed.first.offset, placed.last.offset) == (1, len(made))
        entries = await entries_of(store.topics.log(topic), limit=5000)
        assert [entry.data.encode() for entry in entries] == [each.data for each in made]


# --- Cost ---


async def test_reads_and_seeks_cost_about_the_same_in_a_long_log(
    path: Path, monkeypatch: Patch
) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 100)

        async def fill(to: int) -> None:
            head = (await store.topics.log(topic).locate()).head.offset
            for _ in range(head, to, 16):
                clock.ms += 1
                await publish(store.topics, topic, *range(16))

        def cost(call: str) -> int:
            ms = clock.ms + 100_000 - 10  # almost all entries are gone
            present = Present(ms, ms)
            if call == "read":
                read = partial(
                    topic_entries.read, log=topic.log, after=0, limit=5, at_ms=None, present=present
                )
                return steps_of(path, read)
            at = clock.ms - 7
            locate = partial(
                topic_entries.locate, log=topic.log, ms=at, sequence=0, present=present
            )
            return steps_of(path, locate)

        await fill(256)
        before = {call: cost(call) for call in ("read", "locate")}
        await fill(256 * 32)
        for call, steps in before.items():
            assert cost(call) < 2 * steps


async def test_a_read_touches_no_messages_beyond_its_megabyte(path: Path) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await publish(store.topics, topic, *["p" * 60_000] * 100)
        read = partial(topic_entries.read, log=topic.log, after=0, at_ms=None, present=START)
        entries = await store.topics.log(topic).read(0, 2000)
        assert 1_000_000 < sum(len(entry.data) for entry in entries) < 1_100_000
        least = steps_of(path, partial(read, limit=len(entries)))
        assert steps_of(path, partial(read, limit=2000)) < 1.2 * least


async def test_a_step_of_the_sweep_costs_the_same_however_many_messages_live(path: Path) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await publish(store.topics, topic, *range(20), ttl=1000)
        void = partial(sweep.void, now=START)
        few = steps_of(path, void)
        await publish(store.topics, topic, *range(5000), ttl=1000)
        await publish(store.topics, topic, *range(5000))
        assert steps_of(path, void) < 2 * few


# --- News ---


async def test_own_appends_and_changes_and_the_close_wake_the_follower_without_a_poll(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(news, "POLL_SECONDS", 3600.0)
    async with asyncio.timeout(DEADLINE), opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await store.topics.news({}, 0)
        for number in range(20):
            heads = {topic.log: number}
            for call in (
                partial(publish, store.topics, topic, number),
                partial(store.topics.change, NAME, number + 1),
            ):
                waiting = asyncio.create_task(store.topics.news(heads, 3600))
                await store.topics.find(NAME)  # meanwhile the follower begins to wait
                await call()
                await waiting
                heads = {topic.log: number + 1}
        waiting = asyncio.create_task(store.topics.news({}, 3600))
        await store.topics.find(NAME)
        await store.close()
        await asyncio.gather(waiting, return_exceptions=True)


# --- Failures ---


async def test_a_locked_file_makes_topics_unavailable_until_it_is_free(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("oplogd.store.sqlite.file.connection.BUSY_SECONDS", 0.01)
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        with direct(path) as db:
            db.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailableError, match="another process holds a lock"):
                await publish(store.topics, topic, "a")
            with pytest.raises(StoreUnavailableError):
                await store.topics.create(named("other"), None)
            assert await payloads_of(store.topics, topic) == []
            db.execute("ROLLBACK")
        await publish(store.topics, topic, "b")
        assert await payloads_of(store.topics, topic) == ["b"]


async def test_a_free_number_is_found_without_a_scan(path: Path) -> None:
    async with opened(path):
        query = catalogue._NEXT_LOG.replace(":log", "1").replace(":limit", "9")
        steps = [str(each[-1]) for each in rows(path, f"EXPLAIN QUERY PLAN {query}")]
    of_topics = [step for step in steps if "topics" in step]
    assert len(of_topics) == 2
    assert all("USING COVERING INDEX topics_by_number" in step for step in of_topics), steps


async def test_a_sweep_of_a_file_without_topics_starts_no_thread(tmp_path: Path) -> None:
    async with opened(tmp_path / "oplog.db") as store:
        await store.locate()
        before = set(threading.enumerate())
        assert await store.topics.sweep() == 0
        assert set(threading.enumerate()) == before
