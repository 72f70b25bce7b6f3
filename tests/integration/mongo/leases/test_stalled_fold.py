"""A fold that stands still under a holder that renews its lease.

Writers and copies get an error, and do not crowd the server.
"""

import asyncio
from collections import Counter

import pytest
from pymongo import monitoring

from oplogd.errors import StoreUnavailableError
from oplogd.store import BatchId
from oplogd.store.mongo import MongoStore, Timing
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op, whole_log
from tests.kits.processes.logged import DEADLINE

CAP = 1 << 20


async def fail(*_: object) -> bool:
    raise StoreUnavailableError("stuck")


async def lease_of(store: MongoStore) -> tuple[str, int]:
    """Return the holder and the revision of the lease."""
    document = await store.link.meta.find_one({"_id": "oplog_ops:lease"})
    assert document is not None
    return document["holder"], document["revision"]


async def test_a_writer_gives_up_while_a_stuck_holder_renews_its_lease(
    capped_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = make_store(capped_url, "capped", max_bytes=CAP, lease=60)
    timing = Timing(stall_seconds=1.0)
    writer = make_store(capped_url, "capped", max_bytes=CAP, lease=60, timing=timing)
    await holder.open()
    await writer.open()
    assert holder.lease.held
    name, revision = await lease_of(writer)
    made = [op(str(n), "insert", "video", ("p" * 20_000,)) for n in range(60)]
    with monkeypatch.context() as patch:
        patch.setattr("oplogd.store.mongo.states.projection.fold", fail)
        async with asyncio.timeout(60):
            with pytest.raises(
                StoreUnavailableError, match="is the agent that holds the lease stuck"
            ):
                await writer.append(made, BatchId("w", 0))
        landed = len(await whole_log(writer))
        assert 0 < landed < 60
        async with asyncio.timeout(DEADLINE):
            while (now := await lease_of(writer))[1] == revision:
                await asyncio.sleep(0.01)
        assert now[0] == name
        assert now[1] > revision
    async with asyncio.timeout(60):
        while True:
            try:
                await writer.append(made, BatchId("w", 0))
                break
            except StoreUnavailableError:
                pass
    assert [entry.offset for entry in await whole_log(writer)] == list(range(1, 61))


class FindCounter(monitoring.CommandListener):
    """Counts look-ups by collection."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.counts[str(event.command["find"])] += 1

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


async def test_many_that_wait_for_the_fold_read_no_more_than_one(
    plain_url: str, make_store: MakeStore
) -> None:
    finds = FindCounter()
    holder = make_store(plain_url, "plain", lease=60, event_listeners=[finds])
    await holder.open()
    await holder.append([op("0")])
    await holder.checkpoint()
    await holder.projection.stop()
    await holder.append([op("1")])

    async def reads(waiters: int) -> list[int]:
        """Return the look-ups in three half seconds, once each has looked for the log's head."""
        finds.counts.clear()
        waiting = [asyncio.create_task(holder.checkpoint()) for _ in range(waiters)]
        before = -1
        async with asyncio.timeout(120):
            while not waiters <= finds.counts["oplog_ops"] == before:
                before = finds.counts["oplog_ops"]
                await asyncio.sleep(0.2)
        counts = []
        for _ in range(3):
            finds.counts.clear()
            await asyncio.sleep(0.5)
            counts.append(finds.counts.total())
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return counts

    one, many = await reads(1), await reads(200)
    # A busy machine makes them few or many in one of the three.
    assert max(one) > 0
    assert min(many) <= 3 * max(one)
