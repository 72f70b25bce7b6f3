"""What is told about reads that take long, and about a disk without room."""

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oplog_pipe.commitlog import CommitLog, Mode, NewEntry, OffsetLog, long_read
from oplog_pipe.commitlog.files import FILES
from oplog_pipe.commitlog.index import SegmentIndex, index_path
from oplog_pipe.commitlog.long_read import LongRead
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.errors import LogError, PipeError
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.sources import resume
from oplog_pipe.model.record import EntryRecord, encode_record
from oplog_pipe.model.settings import SourceSettings
from oplog_pipe.sinks.file import FileOptions, FileSink
from tests.kits.pipe.messages import message

ENTRY = NewEntry(0, Mode.SYNC, "video", encode_record(EntryRecord("other", "1", "insert", "x")))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Tell the progress of each read."""
    monkeypatch.setattr(long_read, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(long_read, "_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "oplog_pipe")


def test_a_read_is_told_after_a_second_and_then_every_five(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oplog_pipe")
    now = [0.0]
    progress = LongRead("reading x", 200, lambda: now[0])
    for second in range(12):
        now[0] = second + 0.5
        progress.at(10 * second)
    progress.at(200)
    assert caplog.messages == ["reading x: 5 %", "reading x: 30 %", "reading x: 55 %"]


def test_a_segment_that_is_read_for_lack_of_an_index_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at_once: None
) -> None:
    log = CommitLog.open(tmp_path, max_segment_bytes=3_000_000)
    while len(log.segments) < 2:
        log.append([ENTRY] * 10_000)
    end, (first, second) = log.end, log.segments
    log.close()
    index_path(first.path).unlink()
    log = CommitLog.open(tmp_path, max_segment_bytes=3_000_000)
    assert log.end == end
    for offset in (0, 12_345, first.newest, end - 1):
        entry = log.entry(offset)
        assert entry is not None
        assert entry.offset == offset
    log.close()
    assert len(SegmentIndex(FILES, first.path, 0).marks()) > 2
    assert caplog.messages
    for each in caplog.messages:
        assert each.startswith(f"reading {first.path}, which has no index: ")
    caplog.clear()
    CommitLog.open(tmp_path).close()
    assert caplog.messages == []
    assert second.path.exists()


def test_the_search_for_the_position_of_a_new_source_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at_once: None
) -> None:
    log = CommitLog.open(tmp_path)
    log.append([ENTRY] * 20_000)
    found = resume([SourceSettings("new", ("http://a",))], log, Checkpoints(tmp_path))
    assert found["new"].position == "0"
    assert "looking in the log for the position of new: 50 %" in caplog.messages
    log.close()


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_without_room_is_told_with_the_file_the_room_and_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog.open(tmp_path)
    sink = FileSink(FileOptions("out.jsonl"), tmp_path)
    sink.open()
    monkeypatch.setattr(os, "pwrite", no_room)
    monkeypatch.setattr(os, "write", no_room)
    monkeypatch.setattr(os, "fsync", no_room)
    calls: dict[str, tuple[Callable[[], object], str]] = {
        f"{tmp_path}/{0:020d}.log": (lambda: log.append([ENTRY]), "dir"),
        f"{tmp_path}/offsets/search.log.tmp": (
            lambda: OffsetLog.open(tmp_path, "search").write({"a": 1}), "dir",
        ),
        f"{tmp_path}/sources/s.json.tmp": (
            lambda: Checkpoints(tmp_path).save("s", SourceCheckpoint("l", "0", 0)), "dir",
        ),
        f"{tmp_path}/out.jsonl": (lambda: sink.write([message(0)]), "path"),
        f"{tmp_path}/dead": (
            lambda: DeadLetters(tmp_path / "dead").add(message(0), "x"), "dead_letter",
        ),
    }  # fmt: skip
    for folder in ("offsets", "sources"):
        (tmp_path / folder).mkdir()
    for file, (call, setting) in calls.items():
        with pytest.raises(PipeError) as caught:
            call()
        told = str(caught.value)
        assert f"{file}: No space left on device, " in told, told
        assert " bytes of this disk are free: make room, or set " in told
        assert told.endswith(f"set {setting} to a place on another disk")
    monkeypatch.undo()
    sink.close()
    log.close()


def test_another_failure_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CommitLog.open(tmp_path)

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(LogError) as caught:
        log.append([ENTRY])
    assert str(caught.value) == f"{tmp_path}/{0:020d}.log: Input/output error"
    monkeypatch.undo()
    log.close()
