"""A write of an offset log that a crash of the machine cuts off at any byte."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from oplog_pipe.commitlog import OffsetLog
from oplog_pipe.commitlog.offsets import WHOLE_SINCE, not_whole_key
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.model.wholeness import Wholeness


class State(NamedTuple):
    offset: int
    whole_since: int
    copy_due: int
    settings: tuple[tuple[str, int], ...]
    not_whole: tuple[str, ...]


BEFORE = {
    "video": 100, "user": 90, WHOLE_SINCE: -1,
    "copy//settings/namespace": 1, "copy//settings/target": 2,
}  # fmt: skip


def state(folder: Path) -> State:
    log = OffsetLog.view(folder, "s")
    assert log.offset is not None
    return State(
        log.offset, log.whole_since, log.copy_due, (*sorted(log.settings.items()),),
        (*log.not_whole,),
    )  # fmt: skip


def dead_letter(log: OffsetLog) -> None:
    place = SinkPlace(100, Wholeness(-1))
    place.acknowledge(150, {"video": 150, "user": 140}, missed=149)
    log.write(place.take_unflushed())


def give_up(log: OffsetLog) -> None:
    place = SinkPlace(100, Wholeness(-1))
    place.give_up(5000)
    log.write(place.take_unflushed())


def end_copy(log: OffsetLog) -> None:
    place = SinkPlace(100, Wholeness(-1))
    place.acknowledge(150, {"system/oplog": 150, not_whole_key("oplog"): 150})
    log.write(place.take_unflushed())


def skip(log: OffsetLog) -> None:
    log.skip("video", 101)


def note_settings(log: OffsetLog) -> None:
    log.note_settings({"namespace": 7, "target": 8}, 200)


@pytest.mark.parametrize("act", [dead_letter, give_up, end_copy, skip, note_settings])
def test_a_torn_write_never_has_the_offset_without_its_marks(
    tmp_path: Path, act: Callable[[OffsetLog], None]
) -> None:
    path = tmp_path / "offsets" / "s.log"
    log = OffsetLog.open(tmp_path, "s")
    log.replace(BEFORE)
    size, old = path.stat().st_size, state(tmp_path)
    act(log)
    log.close()
    data, new = path.read_bytes(), state(tmp_path)
    assert new != old
    for cut in range(size, len(data)):
        path.write_bytes(data[:cut])
        found = state(tmp_path)
        is_marked = found[1:] == new[1:]
        assert found.offset == old.offset or is_marked, cut
        assert found.settings == old.settings or found.whole_since == new.whole_since, cut
        # A gap in what the sink has got is never known without the copy that it needs.
        assert found.whole_since == old.whole_since or found.copy_due == new.copy_due, cut
