"""Many pointers and messages in SQLite files: order, steps, cost."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oplogd.model.pointer import MAX_POINTER, Decision
from oplogd.model.transaction import decode_marker
from oplogd.store.sqlite.file import parts as sqlite_parts
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.pointers import (
    ends as pointer_ends,
)
from oplogd.store.sqlite.pointers import (
    rows as pointer_rows,
)
from oplogd.store.sqlite.pointers import (
    steps as pointer_steps,
)
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.messages import NAME, named
from tests.kits.store.pointing import (
    committed,
    entry_at,
    markers_in,
    numbers_of,
    publish_stored,
    publish_under,
    runs_in,
    stamp_of,
    store_under,
    uncommitted,
)
from tests.kits.store.sqlite_files import opened, pointer_counts, steps_of

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


# --- Large numbers ---


@pytest.mark.thorough
async def test_messages_stored_within_one_ms_keep_their_order_past_the_largest_sequence(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)
        await store_under(store, topic, MAX_POINTER, *range(33_000))
        await store_under(store, topic, MAX_POINTER, "last")
        entry = await entry_at(store, topic, await publish_stored(store, topic, MAX_POINTER))
        numbers = await numbers_of(store.topics.log(topic), entry)
        assert len(numbers) == decode_marker(entry.data).records == 33_001
        assert all(each & 0x8000 == 0 for each in numbers)
        expected = [*map(str, range(33_000)), "last"]
        assert await uncommitted(store, topic, page=5000) == expected


async def test_a_rollback_of_many_runs_tells_them_in_several_entries(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(pointer_steps, "RUNS_PER_ENTRY", 3)
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        marks = await publish_under(store, topic, 7, *range(14))
        at = await store.pointers.rollback(topic.log, 7, [stamp_of(each) for each in marks[::2]])
        assert await runs_in(store, topic) == [("7", [1, 3, 5]), ("7", [7, 9, 11]), ("7", [13])]
        assert at is not None
        assert at.offset == 17


@pytest.mark.parametrize(
    ("step", "stored", "expected"),
    [
        (1, 5000, [1] * 15),
        (4, 5000, [4, 4, 4, 3]),
        (500, 2, [1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 2]),
        (500, 5000, [15]),
    ],
)
async def test_the_keeper_ends_all_overdue_pointers_in_steps_of_some_pointers_and_messages(
    path: Path,
    clock: VirtualClock,
    monkeypatch: Patch,
    step: int,
    stored: int,
    expected: list[int],
) -> None:
    monkeypatch.setattr(pointer_ends, "STEP_POINTERS", step)
    monkeypatch.setattr(pointer_ends, "STEP_STORED", stored)
    sizes = []
    time_out = pointer_ends.time_out

    def counted(step: SharedStep) -> int:
        sizes.append(time_out(step))
        return sizes[-1]

    monkeypatch.setattr(pointer_ends, "time_out", counted)
    async with opened(path, clock) as store:
        topics = [await store.topics.create(named(name), None) for name in "ab"]
        for pointer in range(5):
            for topic in topics:
                await store_under(store, topic, pointer, *"abc", timeout_ms=10)
            await publish_under(store, topics[pointer % 2], 10 + pointer, "d", timeout_ms=10)
        clock.ms += 11
        assert await store.pointers.keep() == 15
        assert sizes == [*expected, 0]
        assert pointer_counts(path) == [15, 5, 0]
        told = [marker.txn for topic in topics for _, marker in await markers_in(store, topic)]
        assert sorted(map(int, told)) == sorted([*range(5), *range(5), *range(10, 15)])
        for topic in topics:
            found = await store.topics.log(topic).decisions(range(20))
            assert set(found.values()) == {Decision.TIMED_OUT}


async def test_decided_pointers_cost_the_keeper_and_the_lists_of_open_ones_nothing(
    path: Path,
) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        for pointer in range(5):
            await publish_under(store, topic, pointer, "a")

        def steps() -> int:
            return steps_of(
                path,
                lambda db: (
                    pointer_rows.select(db, topic.log, 100),
                    pointer_rows.stats(db),
                    pointer_rows.decisions(db, topic.log, [3, 100]),
                ),
            )

        few = steps()
        await asyncio.gather(
            *(store.pointers.decide([topic.log], n, Decision.COMMITTED) for n in range(10, 2000))
        )
        assert steps() < 1.2 * few


async def test_a_late_commit_holds_a_part_of_the_messages_at_a_time(
    path: Path, clock: VirtualClock, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sqlite_parts, "STATEMENT_BYTES", 100)
    held: list[int] = []

    def parts(found: Sequence[Any], size_of: Callable[[Any], int]) -> Iterator[Sequence[Any]]:
        held.append(sum(map(size_of, found)))
        return sqlite_parts.parts(found, size_of)

    monkeypatch.setattr(pointer_ends, "parts", parts)
    names = [f"{number:030}" for number in range(20)]
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)
        await publish_under(store, topic, 7, *names)
        clock.ms += 3_600_000
        assert await store.pointers.keep() == 1
        await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
        assert (await committed(store, topic)).payloads == names
    whole, *steps = held
    assert len(steps) == 10
    assert max(steps) <= 100 < whole
