"""What a pipe makes is for its own user only."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplog_pipe.commitlog import CommitLog, Mode, NewEntry, OffsetLog
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.folder.private import close_to_others
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from tests.kits.pipe.messages import message


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def fill(folder: Path) -> None:
    """Make everything that a pipe makes: two segments, offsets, a checkpoint, a dead letter."""
    log = CommitLog.open(folder, max_segment_bytes=1000)
    for _ in range(2):
        log.append([NewEntry(0, Mode.SYNC, "video", b"x" * 900)])
    log.compact(0)
    log.close()
    offsets = OffsetLog.open(folder, "search")
    offsets.write({"video": 1})
    offsets.write({"video": 2})
    Checkpoints(folder).save("system/oplog", SourceCheckpoint("system/oplog", "0", 1))
    DeadLetters(folder / "dead.jsonl").add(message(0), "refused")


def modes(folder: Path) -> set[tuple[str, int]]:
    found = [folder, *folder.rglob("*")]
    return {("d" if each.is_dir() else "f", stat.S_IMODE(each.stat().st_mode)) for each in found}


def test_folders_and_files_are_for_the_user_of_the_pipe(tmp_path: Path) -> None:
    fill(tmp_path / "pipe")
    assert modes(tmp_path / "pipe") == {("d", 0o700), ("f", 0o600)}


def test_files_of_an_earlier_release_are_closed_and_those_of_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "pipe"
    fill(folder)
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    others = [folder / name for name in ("pipe.yaml", "shape.py", "2014.log", "data.json")]
    for each in others:
        each.write_text("")
        each.chmod(0o644)
    with caplog.at_level(logging.WARNING, "oplog_pipe"):
        close_to_others(folder, [folder / "dead.jsonl", folder / "missing.jsonl"])
    assert {stat.S_IMODE(each.stat().st_mode) for each in others} == {0o644}
    for each in others:
        each.unlink()
    assert modes(folder) == {("d", 0o755), ("d", 0o700), ("f", 0o600)}
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"run: chmod 700 {folder}" in told
    assert "mode 0755" in told


def test_nothing_is_told_about_a_folder_that_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "pipe")
    with caplog.at_level(logging.WARNING, "oplog_pipe"):
        close_to_others(tmp_path / "pipe", [])
    assert not caplog.records
