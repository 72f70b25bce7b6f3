"""The agent that holds the lease does not get on with the fold: writers and copies are told, and do not crowd the server."""

import asyncio
from collections import Counter

import pytest
from pymongo import monitoring

from oplogd.errors import StoreUnavailableError
from oplogd.store import BatchId
from oplogd.store.mongo import MongoStore
from tests.mongo.conftest import MakeStore
from tests.mongo.operations import op, stop_folding, whole_log
from tests.mongo.test_room import CAP


async def stick(holder: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on renewing its lease, and folds nothing."""

    async def fail() -> bool:
        raise StoreUnavailableError("stuck")

    assert holder._lease.held
    monkeypatch.setattr(holder._projection, "_fold", fail)


async def test_a_writer_gives_up_while_a_stuck_holder_renews_its_lease(
    capped_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = make_store(capped_url, "capped", max_bytes=CAP, lease=60)
    writer = make_store(capped_url, "capped", max_bytes=CAP, lease=60)
    writer._log.stall_seconds = 1.0
    await holder.open()
    await writer.open()
    fold = holder._projection._fold
    await stick(holder, monkeypatch)
    made = [op(str(n), "insert", "video", ("p" * 20_000,)) for n in range(60)]
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailableError, match="is the agent that holds the lease stuck"):
            await writer.append(made, BatchId("w", 0))
    landed = len(await whole_log(writer))
    assert 0 < landed < 60
    monkeypatch.setattr(holder._projection, "_fold", fold)
    async with asyncio.timeout(60):
        while True:
            try:
                await writer.append(made, BatchId("w", 0))
                break
            except StoreUnavailableError:
                pass
    assert [entry.offset for entry in await whole_log(writer)] == list(range(1, 61))


class _Finds(monitoring.CommandListener):
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
    plain_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds = _Finds()
    monkeypatch.setattr(monitoring, "_LISTENERS", monitoring._Listeners([finds], [], [], [], []))
    holder = make_store(plain_url, "plain", lease=60)
    await holder.open()
    await holder.append([op("0")])
    await holder.checkpoint()
    await stop_folding(holder)
    holder._task = None
    await holder.append([op("1")])

    async def reads(waiters: int) -> int:
        """While so many wait for a second, once each has had its first look."""
        waiting = [asyncio.create_task(holder.checkpoint()) for _ in range(waiters)]
        before = -1
        async with asyncio.timeout(30):
            while finds.counts["oplog_ops"] != before:  # each looks for the head of the log once
                before = finds.counts["oplog_ops"]
                await asyncio.sleep(0.2)
        finds.counts.clear()
        await asyncio.sleep(1)
        count = finds.counts.total()
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return count

    one, many = await reads(1), await reads(200)
    assert one > 0
    assert many <= 3 * one
