"""Repairs of the collections that are cut off after any of their commands: the next keeper goes on, and nothing is lost."""

import contextlib
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from oplogd.errors import StoreUnavailableError
from oplogd.event_id import EventId, Mark
from oplogd.operation import now_ms
from oplogd.store import Entry
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.log import Log
from oplogd.store.mongo.setup import CollectionKind, Setup
from oplogd.stream.start import After, resolve
from tests.mongo.conftest import MakeStore, drop
from tests.mongo.cutting import Cutting
from tests.mongo.operations import live_states, op, whole_log
from tests.mongo.test_setup import fill

Document = dict[str, Any]
MOST_COMMANDS = 60


class Case:
    """A log of an agent in ``database``, of which the last entries are not folded."""

    def __init__(
        self,
        url: str,
        database: AsyncDatabase[Document],
        kind: CollectionKind,
        make_store: MakeStore,
    ) -> None:
        self.url = url
        self.database = database
        self.kind = kind
        self.make_store = make_store
        self.log: list[Entry] = []
        self.objects: set[str] = set()
        self.is_filled = False

    async def begin(self, *, unfolded: bool = True) -> None:
        if self.is_filled:
            return
        store = self.make_store(self.url, self.kind, lease=60)
        await store.open()
        await store.append([op(str(number)) for number in range(6)])
        await store.append([op("0", "delete")])
        await store.checkpoint()
        self.log = await whole_log(store)
        self.objects = {f"video/{number}" for number in range(1, 6)}
        await store.close()
        if unfolded:  # as if the agent had ended before it folded the last three
            mark = self.log[3]
            await self.database.oplog_meta.update_one(
                {"_id": "oplog_ops"}, {"$set": {"n": mark.offset, "ts": mark.ms}}
            )
            await self.database.oplog_states.delete_many({"n": {"$gt": mark.offset}})

    async def insert_stray(self, number: int, id_: str) -> None:
        """An entry of a writer that did not see the index go."""
        at = ObjectId(
            f"{'%08x' % (self.log[-1].ms // 1000)}{'%04x' % (self.log[-1].ms % 1000)}{number:012x}"
        )
        data = {"ts": at.generation_time, "p": [], "t": "video", "id": id_}
        document = {
            "_id": at,
            "event": "insert",
            "data": data,
            "n": number,
            "w": "stray",
            "s": number,
        }
        await self.database.oplog_ops.insert_one(document)
        self.objects.add(f"video/{id_}")


async def first_server(case: Case) -> None:
    await fill(case.database, capped=case.kind == "capped")
    case.objects = {"video/a", "video/b"}


async def nothing(case: Case) -> None:
    pass


async def dropped(case: Case) -> None:
    await case.begin(unfolded=False)
    await case.database.oplog_ops.drop()
    case.log = []


async def index_dropped(case: Case) -> None:
    await case.begin()
    await case.database.oplog_ops.drop_index("offset")


async def doubled(case: Case) -> None:
    await case.begin()
    await case.database.oplog_ops.drop_index("offset")
    data = {"ts": ObjectId().generation_time, "p": [], "t": "video", "id": "twin"}
    await case.database.oplog_ops.insert_one(
        {"event": "insert", "data": data, "n": 7, "w": "other", "s": 0}
    )
    case.objects.add("video/twin")


async def dropped_and_written(case: Case) -> None:
    await case.begin(unfolded=False)
    await case.database.oplog_ops.drop()
    await case.insert_stray(8, "late")
    case.log = []


async def written_below_the_checkpoint(case: Case) -> None:
    await case.begin(unfolded=False)
    await case.database.oplog_ops.drop()
    await case.insert_stray(5, "late")
    case.log = []


async def without_offsets(case: Case) -> None:
    await index_dropped(case)
    await case.database.oplog_ops.insert_many(
        [{"event": "insert", "data": {"t": "video", "id": "x"}} for _ in range(2)]
    )


async def states_dropped(case: Case) -> None:
    await case.begin(unfolded=False)
    await case.database.oplog_states.drop()


PREPARATIONS = [
    first_server,
    nothing,
    dropped,
    index_dropped,
    doubled,
    dropped_and_written,
    written_below_the_checkpoint,
    without_offsets,
    states_dropped,
]


async def keep(url: str, kind: CollectionKind) -> None:
    """What an agent does first once it has the lease. Raises when it is cut off."""
    link = Link(url)

    async def hold() -> bool:
        return True

    try:
        await link.greet()
        await Setup(link, Log(link), kind, None, 1 << 20).keep(hold)
    finally:
        await link.close()


async def check(case: Case) -> None:
    """Another keeper goes on: the log is dense and holds every entry once, the states are its fold, ids stay valid."""
    store = case.make_store(case.url, case.kind)
    await store.open()
    await store.append([op("after")])
    assert set(await live_states(store)) == {*case.objects, "video/after"}
    entries = await whole_log(store)
    first = entries[0].offset
    assert [entry.offset for entry in entries] == list(range(first, first + len(entries)))
    texts = [(entry.event, entry.data) for entry in entries]
    for entry in case.log:
        assert texts.count((entry.event, entry.data)) == 1
    assert [each for each in texts if '"id":"after"' in each[1]] == texts[-1:]
    assert await case.database.oplog_ops.count_documents({"n": {"$gt": 0}}) == len(entries)
    await store.close()


async def check_ids(case: Case) -> None:
    """A consumer resumes behind each entry that it ever saw."""
    store = case.make_store(case.url, case.kind)
    await store.open()
    for entry in case.log:
        located = await store.locate(entry.offset)
        position = EventId(entry.ms // 1000, entry.ms % 1000, entry.offset)
        assert isinstance(resolve(position, located, now_ms()), After)
    await store.close()


async def cut_everywhere(
    url: str,
    kind: CollectionKind,
    make_store: MakeStore,
    prepare: Callable[[Case], Awaitable[None]],
    work: Callable[[str, CollectionKind], Awaitable[None]],
    verify: Callable[[Case], Awaitable[None]],
    step: int = 1,
) -> list[str]:
    """Cut the work after each of its commands in a fresh database each time; the commands of the one that went through."""
    for commands in range(1, MOST_COMMANDS, step):
        await drop(url)
        async with AsyncMongoClient[Document](url) as client:
            case = Case(url, client.get_default_database(), kind, make_store)
            await prepare(case)
            with Cutting(url, commands) as cutting:
                with contextlib.suppress(PyMongoError, StoreUnavailableError):
                    await work(cutting.address, kind)
                names, was_cut = cutting.names, cutting.was_cut
            await verify(case)
            row = await case.database.oplog_meta.find_one({"_id": "oplog_ops"})
            assert row is not None
            assert "repair" not in row
        if not was_cut:
            return names
    raise AssertionError(f"the repair takes more than {MOST_COMMANDS} commands: {names}")


@pytest.mark.parametrize("prepare", PREPARATIONS, ids=lambda each: each.__name__)
async def test_a_keeper_that_is_cut_off_after_any_command_loses_and_doubles_nothing(
    plain_url: str, make_store: MakeStore, prepare: Callable[[Case], Awaitable[None]]
) -> None:
    await cut_everywhere(plain_url, "plain", make_store, prepare, keep, check)


@pytest.mark.parametrize(
    "prepare", [index_dropped, without_offsets], ids=lambda each: each.__name__
)
async def test_ids_stay_valid_where_the_entries_are_whole(
    plain_url: str, make_store: MakeStore, prepare: Callable[[Case], Awaitable[None]]
) -> None:
    await cut_everywhere(plain_url, "plain", make_store, prepare, keep, check_ids)


@pytest.mark.parametrize(
    "prepare", [index_dropped, dropped_and_written], ids=lambda each: each.__name__
)
async def test_a_keeper_of_a_capped_log_may_be_cut_off_too(
    capped_url: str, make_store: MakeStore, prepare: Callable[[Case], Awaitable[None]]
) -> None:
    await cut_everywhere(capped_url, "capped", make_store, prepare, keep, check, step=3)


async def begin_epoch(url: str, kind: CollectionKind) -> None:
    link = Link(url)

    async def hold() -> bool:
        return True

    try:
        await link.greet()
        setup = Setup(link, Log(link), kind, None, 1 << 20)
        await setup.new_epoch(await link.now_ms())
        await setup.keep(hold)
    finally:
        await link.close()


async def unfolded(case: Case) -> None:
    await case.begin()


async def check_epoch(case: Case) -> None:
    """All objects are there, and what was not folded is in the log exactly once."""
    store = case.make_store(case.url, case.kind)
    await store.open()
    await store.append([op("after")])
    assert set(await live_states(store)) == {*case.objects, "video/after"}
    entries = await whole_log(store)
    first = entries[0].offset
    assert first in (1, 5)
    assert [entry.offset for entry in entries] == list(range(first, 9))
    texts = [(entry.event, entry.data) for entry in entries]
    assert texts[-4:-1] == [(entry.event, entry.data) for entry in case.log[4:]]
    located = await store.locate()
    assert located.first_offset == first
    assert located.head.offset == 8
    await store.close()


async def test_a_new_epoch_that_is_cut_off_after_any_command_loses_nothing(
    plain_url: str, make_store: MakeStore
) -> None:
    names = await cut_everywhere(plain_url, "plain", make_store, unfolded, begin_epoch, check_epoch)
    assert names.count("renameCollection") == 2


async def test_a_late_insert_while_the_log_is_made_anew_is_in_it(
    plain_url: str, make_store: MakeStore
) -> None:
    async with AsyncMongoClient[Document](plain_url) as client:
        case = Case(plain_url, client.get_default_database(), "plain", make_store)
        await doubled(case)
        for commands in range(1, MOST_COMMANDS):  # up to where the log is set aside
            with (
                Cutting(plain_url, commands) as cutting,
                contextlib.suppress(PyMongoError, StoreUnavailableError),
            ):
                await keep(cutting.address, "plain")
            if "oplog_ops" not in await case.database.list_collection_names():
                break
        await case.insert_stray(8, "late")
        await check(case)
        assert "video/late" in case.objects


async def test_an_index_that_is_gone_is_created_again_and_nothing_else_changes(
    capped_url: str, make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As after convertToCapped, which drops it."""
    async with AsyncMongoClient[Document](capped_url) as client:
        database = client.get_default_database()
        case = Case(capped_url, database, "capped", make_store)
        await case.begin()
        states = await database.oplog_states.find().to_list()
        options = await database.oplog_ops.options()
        names = set(await database.list_collection_names())
        await database.oplog_ops.drop_index("offset")
        await keep(capped_url, "capped")
        assert await database.oplog_states.find().to_list() == states
        assert await database.oplog_ops.options() == options
        assert set(await database.list_collection_names()) == names
        assert "offset" in await database.oplog_ops.index_information()
        assert "its entries stay as they are" in caplog.text
        store = make_store(capped_url, "capped")
        await store.open()
        assert await whole_log(store) == case.log


@pytest.mark.parametrize("prepare", [index_dropped, doubled], ids=lambda each: each.__name__)
async def test_a_repair_does_not_hold_the_log_in_memory(
    plain_url: str, make_store: MakeStore, prepare: Callable[[Case], Awaitable[None]]
) -> None:
    count, size = 1_500, 20_000
    async with AsyncMongoClient[Document](plain_url) as client:
        case = Case(plain_url, client.get_default_database(), "plain", make_store)
        store = make_store(plain_url, "plain", lease=60, max_bytes=1 << 30)
        await store.open()
        for start in range(0, count, 50):
            await store.append(
                [op(str(n), "insert", "big", ("p" * size,)) for n in range(start, start + 50)]
            )
        await store.close()
        case.is_filled = True
        await prepare(case)
        tracemalloc.start()
        await keep(plain_url, "plain")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < count * size / 3
        assert await case.database.oplog_ops.count_documents({"n": {"$gt": 0}}) == count + (
            prepare is doubled
        )


async def test_entries_that_no_collection_holds_any_more_are_counted(
    plain_url: str, make_store: MakeStore
) -> None:
    async with AsyncMongoClient[Document](plain_url) as client:
        case = Case(plain_url, client.get_default_database(), "plain", make_store)
        await case.begin()  # the last three are not folded
        await case.database.oplog_ops.drop()
        await case.insert_stray(6, "late")  # in the place of one of them
        link = Link(plain_url)
        await link.greet()
        log = Log(link)
        log.saw(Mark(7, case.log[-1].ms))

        async def hold() -> bool:
            return True

        setup = Setup(link, log, "plain", None, 1 << 20)
        await setup.keep(hold)
        await link.close()
        (warning,) = setup.warnings.values()
        assert warning.startswith("2 operations have left the log")
        found = await case.database.oplog_ops.find_one({})
        assert found is not None
        assert (found["n"], found["data"]["id"]) == (8, "late")
