"""The bytes of topics in SQLite files: counted exactly, whatever is written; older files; steps."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oplogd.model.pointer import Decision
from oplogd.store.sqlite import MIGRATIONS, SqliteStore
from oplogd.store.sqlite.upkeep import bounds as keeper
from oplogd.store.sqlite.upkeep import leaving
from oplogd.store.topics import DECIDED_MS, ENTRY_BYTES, MIN_MAX_BYTES, Topic
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.bounded import BOUND, FIT, fill, octets_of, settle
from tests.kits.store.messages import NAME, entries_of, named, payloads_of, publish
from tests.kits.store.pointing import TIMEOUT_MS, publish_stored, publish_under, store_under
from tests.kits.store.sqlite_files import (
    SIZES,
    number,
    open_at_version,
    opened,
    pointer_counts,
)
from tests.kits.store.transacting import begin, committed_with, records, write

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")

COUNTED = "SELECT coalesce(sum(octets), 0) FROM topic_sizes WHERE log > 0"
PRESENT = " + ".join(
    f"(SELECT coalesce(sum({ENTRY_BYTES} + length(CAST(data AS BLOB))), 0) FROM {table})"
    for table in ("entries", "stored")
)


@pytest.fixture(autouse=True)
def always_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call of ``shrink`` count all topics."""
    monkeypatch.setattr(keeper, "FIGURES_SECONDS", 0.0)


async def is_exact(store: SqliteStore, path: Path) -> bool:
    await settle(store.topics)
    return number(path, COUNTED) == number(path, f"SELECT {PRESENT}")


async def use(store: SqliteStore, topic: Topic) -> None:
    """Do everything that writes entries or stored messages."""
    await publish(store.topics, topic, "a", "ä" * 100, ttl=60)
    await publish(store.topics, topic, *range(30))
    await committed_with(store, *records(topic, "b", "c"))
    transaction = await begin(store, topic=topic)
    await write(store, transaction, *records(topic, "d"))
    await store.transactions.abort(transaction.id)
    for pointer in (7, 8, 9):
        await publish_under(store, topic, pointer, "e", "f")
    await store.pointers.rollback(topic.log, 7, None)
    await store.pointers.decide([topic.log], 8, Decision.COMMITTED)
    await store_under(store, topic, 10, "g", "h")
    await publish_stored(store, topic, 10)
    await store_under(store, topic, 11, "i")
    await store.pointers.decide([topic.log], 11, Decision.ABORTED)
    await store_under(store, topic, 12, "j")


async def test_whatever_writes_the_count_is_exact_until_everything_has_left(path: Path) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topics = [await store.topics.create(named(name), None) for name in "ab"]
        for topic in topics:
            await use(store, topic)
            assert await is_exact(store, path)
        assert number(path, COUNTED) > 0
        await publish(store.topics, topics[0], "not counted yet")
        clock.ms += 61_000
        await store.topics.sweep()
        assert await is_exact(store, path)
        clock.ms += TIMEOUT_MS
        await store.pointers.keep()
        for topic in topics:
            await store.pointers.decide([topic.log], 9, Decision.COMMITTED)
            assert "late" in {each.event for each in await entries_of(store.topics.log(topic))}
            assert await is_exact(store, path)
            await store.pointers.rollback(topic.log, 9, None, force=True)
            await store.pointers.decide([topic.log], 12, Decision.ABORTED)
            assert await is_exact(store, path)
        clock.ms += 8 * 86_400_000
        await store.pointers.keep()
        assert await store.transactions.retire(lambda log: False) == 1
        await store.topics.sweep()
        assert await is_exact(store, path)
        for topic in topics:
            await store.topics.delete(topic.name)
        await store.topics.sweep()
        assert number(path, COUNTED) == 0


@pytest.mark.parametrize("small", [False, True])
async def test_what_an_older_file_holds_is_counted_once_beside_the_writes(
    path: Path, monkeypatch: Patch, small: bool
) -> None:
    if small:
        monkeypatch.setattr(leaving, "COUNTED_ENTRIES", 3)
        monkeypatch.setattr(keeper, "COUNT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        open_at_version(patch, SIZES - 1)
        async with opened(path) as older:
            topic = await older.topics.create(NAME, None)
            await use(older, topic)
    async with opened(path) as store:
        assert number(path, COUNTED) == 0, "nothing is counted at the start"
        assert number(path, "PRAGMA user_version") == len(MIGRATIONS)
        for _ in range(80):
            await store.topics.shrink()
            await publish(store.topics, topic, "more")
            await store.pointers.rollback(topic.log, 9, None)
            await store.topics.sweep()
            await store.pointers.decide([topic.log], 12, Decision.ABORTED)
        for _ in range(80):  # each counts some
            await store.topics.shrink()
        assert await is_exact(store, path)


async def test_an_agent_of_the_version_before_is_counted_too(
    path: Path, monkeypatch: Patch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            open_at_version(patch, SIZES - 1)
            older = await stack.enter_async_context(opened(path))
            topic = await older.topics.create(NAME, None)
        newer = await stack.enter_async_context(opened(path))
        await newer.topics.change(NAME, None, max_bytes=BOUND)
        with monkeypatch.context() as patch:
            open_at_version(patch, SIZES - 1)
            await fill(older.topics, topic, 2 * FIT)
            await older.topics.create(named("other"), None)
        assert await is_exact(newer, path)
        assert len(await payloads_of(older.topics, topic)) in (FIT - 1, FIT)


async def test_an_upgrade_removes_nothing(path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        open_at_version(patch, SIZES - 1)
        async with opened(path) as older:
            topic = await older.topics.create(NAME, None)
            await fill(older.topics, topic, 2 * FIT)
    async with opened(path) as store:
        await settle(store.topics)
        assert len(await payloads_of(store.topics, topic)) == 2 * FIT
        assert (await store.topics.stats()).max_bytes is None


async def test_a_large_commit_leaves_in_steps_of_some_entries(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(leaving, "STEP_ENTRIES", 10)
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None, max_bytes=BOUND)
        await committed_with(store, *records(topic, *range(95)))
        clock.ms += DECIDED_MS
        await fill(store.topics, topic, FIT)
        await settle(store.topics)
        assert number(path, "SELECT count(*) FROM records") == 0
        assert number(path, "SELECT count(*) FROM entries WHERE kind <> 'message'") == 0
        assert await is_exact(store, path)


async def test_the_decision_of_a_late_commit_leaves_after_its_messages(path: Path) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 86_400, max_bytes=BOUND)
        await publish_under(store, topic, 7, "late")
        clock.ms += TIMEOUT_MS + 1
        await store.pointers.keep()
        await fill(store.topics, topic, FIT - 4)
        await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
        clock.ms += DECIDED_MS
        await fill(store.topics, topic, 6)
        await settle(store.topics)
        await store.topics.sweep()
        assert pointer_counts(path)[0] == 1
        clock.ms += 2 * 86_400_000
        await publish(store.topics, topic, "more")
        await store.topics.sweep()
        assert pointer_counts(path) == [0, 0, 0]
        assert number(path, "SELECT count(*) FROM entries") == 1
        assert await is_exact(store, path)


async def test_the_decision_of_a_late_commit_leaves_after_messages_that_expire_later(
    path: Path,
) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 3600)
        await publish_under(store, topic, 7, "late")
        clock.ms += TIMEOUT_MS + 1
        await store.pointers.keep()
        clock.ms += 3_600_000 - TIMEOUT_MS - 1000
        await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
        for minutes, pointers in ((45, 1), (60, 0)):
            clock.ms += minutes * 60_000
            await publish(store.topics, topic, "more")
            await store.topics.sweep()
            assert pointer_counts(path)[0] == pointers


# --- Model ---

SIZE_OF = octets_of("000000" + "m" * 4_000)


@settings(max_examples=10)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 60)),
            st.tuples(st.just("bound"), st.sampled_from([1, 2, 3])),
            st.tuples(st.just("shrink"), st.just(0)),
        ),
        min_size=1,
        max_size=25,
    )
)
async def test_random_publishes_and_bounds_keep_the_newest_messages(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, int]]
) -> None:
    """The reference: what is left are the newest messages, as many as the bounds allow."""
    path = tmp_path_factory.mktemp("model") / "oplog.db"
    async with opened(path) as store:
        topics, bound, made, least = store.topics, BOUND, 0, 0
        topic = await topics.create(NAME, None, max_bytes=bound)
        for what, count in script:
            if what == "publish":
                payloads = [f"{made + k:06d}" + "m" * 4_000 for k in range(count)]
                await publish(topics, topic, *payloads)
                made += count
            elif what == "bound":
                bound = count * MIN_MAX_BYTES
                topic = await topics.change(NAME, None, max_bytes=bound)
            else:
                await settle(topics)
            left = [int((each or "")[:6]) for each in await payloads_of(topics, topic)]
            assert left == [*range(made - len(left), made)]
            assert made - len(left) >= least, "nothing comes back"
            slack = bound // 16 + SIZE_OF
            assert len(left) >= min(made - least, (bound - slack) // SIZE_OF), "too many left"
            least = made - len(left)
            if what == "shrink":
                assert len(left) * SIZE_OF <= bound
            assert await is_exact(store, path)


@pytest.mark.parametrize("way", ["publish", "publish under", "store", "write"])
async def test_what_is_large_takes_the_place_of_as_much_that_is_small(path: Path, way: str) -> None:
    """The keeper does not run meanwhile."""
    size = 300_000
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None, max_bytes=BOUND)
        transaction = await begin(store)
        await fill_with_small(store, topic)
        for place in range(3):
            payload = "x" * size
            if way == "publish":
                await publish(store.topics, topic, payload)
            elif way == "publish under":
                await publish_under(store, topic, 7, payload)
            elif way == "store":
                await store_under(store, topic, 7, payload)
            else:
                await write(store, transaction, *records(topic, payload, first=place))
        assert number(path, f"SELECT {PRESENT}") <= BOUND + keeper.APPENDED_BYTES + size


async def fill_with_small(store: SqliteStore, topic: Topic) -> None:
    for _ in range(1 + BOUND // (5_000 * octets_of(""))):
        await publish(store.topics, topic, *[""] * 5_000)
    await settle(store.topics)
