"""The cap and the batches of the embedded log."""

import asyncio
from pathlib import Path

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.model.operation import Operation
from oplogd.store.sqlite.file import parts as sqlite_parts
from tests.kits.models.operations import numbered, operation
from tests.kits.store.kits import log_of
from tests.kits.store.sqlite_files import direct, opened, whole


async def test_only_an_explicit_cap_changes_the_cap_of_the_file(path: Path) -> None:
    for given, expected_cap in [(5000, 5000), (None, 5000), (7000, 7000), (None, 7000)]:
        async with opened(path, max_bytes=given) as store:
            assert (await store.stats()).max_bytes == expected_cap


async def test_the_bytes_counted_for_the_cap_match_a_recount(path: Path) -> None:
    async with opened(path, max_bytes=3000) as store:
        for number in range(1, 60):
            await store.append(
                [operation(id_="é" * (number * 7 % 50 + 1), parents=["p"] * (number % 4))]
                * (number % 3 + 1)
            )
            with direct(path) as db:
                ((recount,),) = db.execute(
                    "SELECT sum(length(CAST(key AS BLOB)) + length(CAST(data AS BLOB)) + 32)"
                    " FROM ops"
                ).fetchall()
            stats = await store.stats()
            assert stats.bytes == recount <= 3000
        assert stats.operations > 5


async def test_a_log_far_over_its_new_cap_is_trimmed_in_steps(path: Path) -> None:
    async with opened(path) as store:
        for first in range(0, 25_000, 5000):
            await store.append(numbered(5000, first))
    async with opened(path, max_bytes=2000) as store:
        stats = await store.stats()
        entries = await log_of(store)
        assert stats.bytes <= 2000
        assert stats.operations == len(entries) == 25_000 - entries[0].offset + 1
        assert stats.states == 25_000


@pytest.mark.parametrize(
    "count", [3, 2 * sqlite_parts.STATEMENT_OPERATIONS], ids=["one statement", "several"]
)
async def test_an_append_that_was_interrupted_leaves_nothing(path: Path, count: int) -> None:
    made = numbered(2)
    async with opened(path) as store:
        await store.append(made)
        broken = Operation("insert", "video/x", b"{not json")
        with pytest.raises(StoreUnavailableError):
            await store.append([*numbered(count, first=10), broken])
        await whole(store, made)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "made",
    [
        numbered(2 * sqlite_parts.STATEMENT_OPERATIONS + 1),
        [operation(id_=str(number), parents=["p" * 900_000]) for number in range(5)],
        [operation(parents=["p" * 2 * sqlite_parts.STATEMENT_BYTES])],
    ],
    ids=["many", "large", "one larger than a statement"],
)
async def test_a_large_batch_is_appended_completely_and_in_order(
    path: Path, made: list[Operation]
) -> None:
    async with opened(path) as store:
        await store.append(made)
        await whole(store, made)


async def test_readers_see_only_complete_batches(path: Path) -> None:
    """Ten writers append batches of seven. Readers see whole batches and their states."""
    async with opened(path) as store, opened(path) as other:

        async def look() -> None:
            for _ in range(20):
                bounds = await other.locate()
                assert bounds.head.offset % 7 == 0
                assert (await other.checkpoint()).offset >= bounds.head.offset
                assert len(await other.read(0, 1000)) % 7 == 0

        await asyncio.gather(look(), *(store.append(numbered(7, first=n * 7)) for n in range(10)))
        assert (await other.locate()).head.offset == 70
