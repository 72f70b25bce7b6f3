"""Writers wait for the fold, so that no entry leaves the log before it is in the states.

An entry that does leave is counted and reported.
"""

import asyncio
from collections.abc import Sequence

import pytest

from oplogd.clock import Clock
from oplogd.model.operation import Operation
from oplogd.store import BatchId
from oplogd.store.mongo.log.conditional import LogLanding
from oplogd.store.mongo.log.ends import Head
from oplogd.store.mongo.setup.setup import CollectionKind
from tests.kits.agents.agent import DEADLINE
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import folded, live_states, op, whole_log

CAP = 1 << 20


async def test_a_writer_waits_while_unfolded_entries_fill_half_of_the_cap(
    capped_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, writer = (make_store(capped_url, "capped", max_bytes=CAP, lease=60) for _ in range(2))
    await holder.open()
    await writer.open()
    await holder.projection.stop()
    appender, room = writer.appender, writer.room
    waits = asyncio.Event()
    is_crowded, insert = room.is_crowded, appender.insert
    fills: list[int] = []
    made = [op(str(n), "insert", "video", ("p" * 20_000,)) for n in range(70)]
    size = len(made[0].data)

    def watched() -> bool:
        crowded = is_crowded()
        if crowded:
            waits.set()
        return crowded

    async def weighed(
        head: Head, chunk: Sequence[tuple[int, Operation]], name: str | None
    ) -> LogLanding:
        row = await writer.link.meta.find_one({"_id": "oplog_ops"})
        assert row is not None
        fills.append((head.mark.offset + len(chunk) - row["n"]) * size)
        return await insert(head, chunk, name)

    monkeypatch.setattr(room, "is_crowded", watched)
    monkeypatch.setattr(appender, "insert", weighed)
    async with asyncio.timeout(120):
        writing = asyncio.create_task(writer.append(made, BatchId("w", 0)))
        await waits.wait()
        before = len(await whole_log(writer))
        assert CAP * 0.4 < before * size < CAP * 0.6
        waits.clear()
        await waits.wait()  # it has looked again meanwhile
        assert not writing.done()
        assert len(await whole_log(writer)) == before
        await holder.lease.release()
        await writing
    entries = await whole_log(writer)
    assert [entry.data.encode() for entry in entries] == [each.data for each in made]
    assert max(fills) < CAP * 0.6
    assert await live_states(writer) == folded(entries)


async def test_entries_that_have_left_the_log_unfolded_are_counted_and_the_way_out_is_named(
    place: tuple[str, CollectionKind], make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    holder, other = make_store(*place, lease=60), make_store(*place)
    await holder.open()
    await other.open()
    await other.append([op("0")])
    await other.checkpoint()
    await holder.projection.stop()
    await other.append([op(str(n)) for n in range(1, 10)])
    assert (await other.stats()).warnings == ()
    await other.link.log.delete_many({"n": {"$lte": 5}})  # as when somebody shrinks the collection
    await holder.lease.release()
    assert (await other.checkpoint()).offset == 10
    (warning,) = (await other.stats()).warnings
    assert warning.startswith("4 operations have left the log before they were in the states")
    assert "oplog-sync" in warning
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        warning
    ]
    assert set(await live_states(other)) == {f"video/{n}" for n in (0, 5, 6, 7, 8, 9)}


async def test_a_writer_that_knew_a_longer_log_does_not_wait_for_the_fold_of_a_new_one(
    capped_url: str, make_store: MakeStore
) -> None:
    """The database was dropped while the agent that folds was unreachable."""
    holder = make_store(capped_url, "capped", max_bytes=CAP, lease=60)
    # By its clock no time passes: it would wait for ever.
    own = Clock(monotonic=VirtualClock().monotonic)
    writer = make_store(capped_url, "capped", max_bytes=CAP, lease=60, clock=own)
    await holder.open()
    await writer.open()
    for number in range(14):
        await writer.append([op(str(number), "insert", "video", ("p" * 50_000,))])
        await writer.checkpoint()
    await holder.projection.stop()
    await writer.projection.stop()  # nor may it create the new log, behind the head that it knows
    await writer.link.client.drop_database(writer.link.database.name)
    again = make_store(capped_url, "capped", max_bytes=CAP)
    await again.open()
    await writer.locate()
    async with asyncio.timeout(DEADLINE):
        await writer.append([op("new")])
    assert [entry.offset for entry in await whole_log(writer)] == [1]
