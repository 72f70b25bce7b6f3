"""Sinks that cannot give up their place, because no copy makes up for their backlog."""

from pathlib import Path

from msgspec import Raw

from oplog_pipe.commitlog import Mode, NewEntry
from oplog_pipe.model.record import EntryRecord, encode_record
from tests.unit.pipe.engine.bound import ENTRY, SOON, BoundFolder, Target, changes, until, waits
from tests.unit.pipe.engine.engine import RecordingSink, sink


async def test_messages_of_a_source_that_left_the_settings_are_not_given_up(tmp_path: Path) -> None:
    orders = [
        NewEntry(
            5,
            Mode.SYNC,
            "shop/orders",
            encode_record(EntryRecord("shop", "p", "update", str(id_), data=Raw(b"{}"))),
        )
        for id_ in range(8)
    ]
    folder = BoundFolder(
        tmp_path, sink("dead", on_failure="park", retry_for=0.0), sink("well"),
        max_log_bytes=40 * ENTRY, offset_flush=0.01,
    )  # fmt: skip
    folder.fill(*orders)
    folder.acknowledge(dead=0, well=0)
    dead = Target("dead")
    async with folder.start(
        dead, RecordingSink("well"), lists=[changes(300)], clock=SOON
    ) as running:
        await waits(running, "no copy brings messages of source 'shop' again")
        dead.is_away = False
        await until(lambda: running.log_status.end == 308)
    found = [each.id for each in dead.messages if each.namespace == "shop/orders"]
    assert found == [str(id_) for id_ in range(1, 8)]


class Keeping(Target):
    """A target that forgets nothing at the end of a copy."""

    removes_at_end_of_copy = False


async def test_the_sources_wait_for_a_sink_whose_copies_remove_nothing(tmp_path: Path) -> None:
    folder = BoundFolder(
        tmp_path, sink("mirror", on_failure="park", retry_for=0.0), sink("well"),
        max_log_bytes=40 * ENTRY, offset_flush=0.01,
    )  # fmt: skip
    mirror = Keeping("mirror")
    async with folder.start(
        mirror, RecordingSink("well"), lists=[changes(300)], clock=SOON
    ) as running:
        await waits(
            running,
            "the end of a copy removes nothing from its target: deletions would be lost",
        )
        assert not running.pipe.status().sinks[0].copy_due
        mirror.is_away = False
        await until(lambda: len(mirror.offsets) == 300)
    assert mirror.offsets == [*range(300)]
