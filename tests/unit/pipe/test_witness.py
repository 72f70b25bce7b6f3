"""Checkpoints of sources with a store and a witness: what is on disk, and when."""

from pathlib import Path

from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint, Witness
from oplog_pipe.follow.recorder import Recorder
from oplog_pipe.follow.sources import behind
from oplog_pipe.follow.streams import Change
from oplog_pipe.follow.track import Track
from oplog_pipe.model.record import EntryRecord
from oplog_pipe.model.settings import SourceSettings

IDS = [f"545b55c7f095528dd0f3860{number}" for number in range(3)]
STORE = "a" * 32
FOUND = SourceCheckpoint("system/oplog", IDS[0], 4, 1, 2, 3, STORE, Witness(IDS[0], IDS[1]))


def track() -> Track:
    return Track(SourceSettings("oplog", ()), FOUND)


def test_a_witness_is_kept_until_its_head_is_on_disk() -> None:
    one = track()
    assert one.checkpoint(4) == FOUND
    one.position = IDS[1]
    assert one.checkpoint(5).witness is None


def test_entries_behind_a_checkpoint_keep_its_store_and_its_witness() -> None:
    for op in ("reset", "insert", "live"):
        record = EntryRecord("oplog", "5", op, copy=1)
        found = behind(FOUND, record, 4)
        assert (found.store, found.witness, found.end) == (STORE, FOUND.witness, 5)


def test_another_store_begins_with_nothing_of_the_one_before() -> None:
    one = track()
    one.restart("b" * 32)
    assert one.checkpoint(9) == SourceCheckpoint("system/oplog", "0", 9, store="b" * 32)


async def test_a_step_comes_behind_all_that_was_put_and_is_on_disk_when_it_returns(
    tmp_path: Path,
) -> None:
    log = CommitLog.open(tmp_path)
    one = track()
    seen: list[str] = []

    def step() -> None:
        seen.append(one.position)
        one.adopt("c" * 32)

    async with Recorder(log, Checkpoints(tmp_path), [one], save_interval=3600.0) as recorder:
        recorder.put(one, [Change(IDS[2], 1, "insert", "video", "x", 1, b"{}")])
        await recorder.step(step)
        assert seen == [IDS[2]]
        saved = Checkpoints(tmp_path).load("oplog")
        assert saved == SourceCheckpoint("system/oplog", IDS[2], 1, 1, 3, 3, "c" * 32)
    log.close()
