"""Logs that need a repair, and the keeper that repairs them."""

from typing import Any

from bson import ObjectId
from pymongo.asynchronous.database import AsyncDatabase

from oplogd.store import Entry
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.setup.setup import CollectionKind, Setup
from tests.integration.mongo.first_server import fill
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op, whole_log

Document = dict[str, Any]


class RepairCase:
    """A log of an agent in ``database``. Its last entries are not folded."""

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
        """Insert an entry of a writer that did not notice the loss of the index."""
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


async def first_server(case: RepairCase) -> None:
    await fill(case.database, capped=case.kind == "capped")
    case.objects = {"video/a", "video/b"}


async def nothing(case: RepairCase) -> None:
    pass


async def dropped(case: RepairCase) -> None:
    await case.begin(unfolded=False)
    await case.database.oplog_ops.drop()
    case.log = []


async def index_dropped(case: RepairCase) -> None:
    await case.begin()
    await case.database.oplog_ops.drop_index("offset")


async def doubled(case: RepairCase) -> None:
    await case.begin()
    await case.database.oplog_ops.drop_index("offset")
    data = {"ts": ObjectId().generation_time, "p": [], "t": "video", "id": "twin"}
    await case.database.oplog_ops.insert_one(
        {"event": "insert", "data": data, "n": 7, "w": "other", "s": 0}
    )
    case.objects.add("video/twin")


async def dropped_and_written(case: RepairCase) -> None:
    await case.begin(unfolded=False)
    await case.database.oplog_ops.drop()
    await case.insert_stray(8, "late")
    case.log = []


async def written_below_the_checkpoint(case: RepairCase) -> None:
    await case.begin(unfolded=False)
    await case.database.oplog_ops.drop()
    await case.insert_stray(5, "late")
    case.log = []


async def without_offsets(case: RepairCase) -> None:
    await index_dropped(case)
    await case.database.oplog_ops.insert_many(
        [{"event": "insert", "data": {"t": "video", "id": "x"}} for _ in range(2)]
    )


async def states_dropped(case: RepairCase) -> None:
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
    """Do as an agent that has just taken the lease. Raises if it is cut off."""
    link = Link(url)

    async def hold() -> bool:
        return True

    try:
        await link.greet()
        await Setup(link, Log(link), kind, None, 1 << 20).keep(hold)
    finally:
        await link.close()
