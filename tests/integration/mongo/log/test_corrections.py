"""Corrections that race with writers, with each other and with trimming.

No correction follows a newer operation on its object.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from oplogd.model.operation import Operation, decode_data, encode_data
from oplogd.store import BatchId, Correction, CorrectionResult
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.setup.setup import CollectionKind
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import TIMESTAMP, folded, live_states, op, states_of, whole_log

APPLIED, PRESENT, SKIPPED = (
    CorrectionResult.APPLIED,
    CorrectionResult.PRESENT,
    CorrectionResult.SKIPPED,
)


def correction(id_: str, expected: int | None, event: str = "update") -> Correction:
    """Return a correction whose parents name the operation it was made for."""
    data = encode_data(TIMESTAMP, ["made-for", str(expected)], "video", id_)
    return Correction(Operation(event, f"video/{id_}", data), expected)


async def seen(store: MongoStore) -> dict[str, int]:
    """Return each object's last offset by the states, which may be behind the log."""
    upto = (await store.locate()).head.offset
    found: dict[str, int] = {}
    for state in await states_of(store, upto):
        assert isinstance(state.cursor.tie, str)
        found[decode_data(state.data).id] = int(state.cursor.tie[:12], 16) - 1
    return found


async def assert_none_overwrote(store: MongoStore, verdicts: Counter[CorrectionResult]) -> None:
    """Demand that each correction follows exactly the operation that it was made for."""
    last: dict[str, int] = {}
    entries = await whole_log(store)
    made = 0
    for entry in entries:
        data = decode_data(entry.data)
        if data.parents[:1] == ["made-for"]:
            made += 1
            assert last.get(data.id, 0) == int(data.parents[1]), entry
        last[data.id] = entry.offset
    assert made == verdicts[APPLIED]
    assert [entry.offset for entry in entries] == list(range(1, len(entries) + 1))
    assert await live_states(store) == folded(entries)


def meanwhile(
    monkeypatch: pytest.MonkeyPatch,
    store: MongoStore,
    name: str,
    work: Callable[[], Awaitable[None]],
) -> None:
    """Do ``work`` once, right after the guard's first call of the method ``name``."""
    method = getattr(store.guard, name)
    done = False

    async def wrapped(*arguments: object) -> object:
        nonlocal done
        result = await method(*arguments)
        if not done:
            done = True
            await work()
        return result

    monkeypatch.setattr(store.guard, name, wrapped)


# Objects, rounds in which each corrector tries all of them, and correctors. FerretDB reads the
# whole collection for each answer.
SIZES = {"mongo-capped": (25, 5, 2), "mongo-plain-small": (25, 5, 2), "mongo-plain": (50, 10, 3)}


async def test_corrections_that_race_with_writers_never_overwrite(
    request: pytest.FixtureRequest, place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    objects, rounds, count = SIZES[request.node.callspec.params["place"]]
    writer, *correctors = (make_store(*place) for _ in range(1 + count))
    for store in (writer, *correctors):
        await store.open()
    await writer.append([op(str(n)) for n in range(objects)])
    chance = random.Random(4)
    verdicts: Counter[CorrectionResult] = Counter()
    tried = 0
    turns = asyncio.Semaphore(0)

    async def write() -> None:
        for _ in range(rounds * count):
            await turns.acquire()
            await writer.append(
                [op(str(n), "update") for n in chance.sample(range(objects), objects // 10)]
            )

    async def correct(store: MongoStore) -> None:
        nonlocal tried
        for _ in range(rounds):
            made = [correction(id_, n) for id_, n in (await seen(store)).items()]
            tried += len(made)  # fewer than the objects if some changed while the states were read
            turns.release()
            verdicts.update(await store.correct(made))

    await writer.checkpoint()
    await asyncio.gather(write(), *(correct(store) for store in correctors))
    assert verdicts.total() == tried > objects
    assert verdicts[APPLIED] > objects
    assert verdicts[SKIPPED] > 0
    await assert_none_overwrote(writer, verdicts)


@pytest.mark.parametrize("moment", ["read_states", "read_on"])
async def test_what_is_written_between_the_steps_of_a_correction_is_seen(
    place: tuple[str, CollectionKind],
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    store, other = make_store(*place), make_store(*place)
    await store.open()
    await other.open()
    await other.append([op("a"), op("b"), op("c")])
    await other.checkpoint()

    async def write() -> None:
        await other.append([op("b", "delete"), op("d")])

    meanwhile(monkeypatch, store, moment, write)
    given = [
        correction("a", 1),
        correction("b", 2),
        correction("c", 3),
        correction("d", 0),
        correction("e", 0),
    ]
    assert await store.correct(given) == [APPLIED, SKIPPED, APPLIED, SKIPPED, APPLIED]
    await assert_none_overwrote(store, Counter({APPLIED: 3}))


async def test_a_correction_is_judged_by_the_states_again_when_the_log_has_moved_on(
    plain_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = (
        make_store(plain_url, "plain", max_bytes=10_000),
        make_store(plain_url, "plain", max_bytes=10_000),
    )
    await other.open()
    await store.open()
    await other.append([op("a"), op("b")])
    await other.checkpoint()

    async def turn_over() -> None:
        await other.append([op("a", "update")])
        async with asyncio.timeout(120):
            while (await store.read(0, 1))[0].offset < 10:
                await other.append([op("x") for _ in range(100)])
                await other.checkpoint()

    meanwhile(monkeypatch, store, "read_states", turn_over)
    assert await store.correct([correction("a", 1), correction("b", 2)]) == [SKIPPED, APPLIED]
    states = await live_states(store)
    assert states["video/a"].encode() == op("a").data
    assert states["video/b"].encode() == correction("b", 2).operation.data


async def test_what_is_in_the_log_and_not_in_the_states_counts(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    first, second = make_store(*place, lease=60), make_store(*place)
    await first.open()
    await second.open()
    await first.append([op("a"), op("b")])
    await first.checkpoint()
    await first.projection.stop()  # it holds the lease and folds no more
    await first.append([op("a", "update"), op("c")], BatchId("other", 0))
    given = [
        correction("a", 1),
        correction("a", 3),
        correction("b", 2),
        correction("c", 0),
        correction("c", 4),
    ]
    verdicts, _ = await second.guard.correct(given)
    assert verdicts == [SKIPPED, SKIPPED, APPLIED, SKIPPED, SKIPPED]
    verdicts, _ = await second.guard.correct(
        [correction("a", 3), correction("c", 4), correction("b", 2)]
    )
    assert verdicts == [APPLIED, APPLIED, PRESENT]
    assert [entry.offset for entry in await whole_log(second)] == [1, 2, 3, 4, 5, 6, 7]


async def test_more_corrections_than_a_command_takes_keep_their_order(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    store = make_store(*place)
    await store.open()
    made = [correction(str(n), 0, "insert") for n in range(250)]
    assert await store.correct(made) == [APPLIED] * 250
    assert [entry.data.encode() for entry in await whole_log(store)] == [
        each.operation.data for each in made
    ]
    assert len(await live_states(store)) == 250
    assert await store.correct(made) == [PRESENT] * 250
    assert await store.correct([]) == []


async def test_a_log_is_taken_as_it_is_by_one_that_does_not_say_how_it_must_be(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    url, kind = place
    agent = make_store(url, kind, max_bytes=1 << 20)
    await agent.open()
    tool = MongoStore(url, collection=None, new_bytes=1 << 21)
    await tool.open()
    try:
        assert await tool.correct([correction("a", 0)]) == [APPLIED]
        assert (await tool.stats()).max_bytes == (await agent.stats()).max_bytes == 1 << 20
    finally:
        await tool.close()
