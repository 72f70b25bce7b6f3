"""The sink that appends JSON lines to a file."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.sinks.file import FileOptions, FileSink
from tests.kits.pipe.messages import message

LINE = (
    '{"offset":0,"op":"insert","timestamp":"2014-11-06T11:04:39.041Z","namespace":"video",'
    '"data":{"n": 0}}\n'
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.fixture
def sink(path: Path) -> Iterator[FileSink]:
    made = FileSink(FileOptions(path.name), path.parent)
    made.open()
    yield made
    made.close()


def offsets(path: Path) -> list[int]:
    return [json.loads(line)["offset"] for line in path.read_text().splitlines()]


def test_a_line_has_the_data_as_it_came(sink: FileSink, path: Path) -> None:
    sink.write([message(0)])
    assert path.read_text() == LINE


def test_a_line_has_what_a_step_made_of_the_message(sink: FileSink, path: Path) -> None:
    changed = message(0)
    changed.op, changed.namespace, changed.timestamp = "delete", 'a"b', -1
    changed.data["n"] = "é"
    sink.write([changed])
    assert path.read_text() == (
        '{"offset":0,"op":"delete","timestamp":"1969-12-31T23:59:59.999Z","namespace":"a\\"b",'
        '"data":{"n":"é"}}\n'
    )


def test_data_with_line_feeds_has_one_line(sink: FileSink, path: Path) -> None:
    raw = b'{\n "a": "b\\nc"\n}'
    sink.write([Message("insert", 0, "n", raw, id="a", offset=5, version=5, source="s")])
    text = path.read_text()
    assert text.count("\n") == 1
    assert json.loads(text)["data"] == {"a": "b\nc"}


def test_writes_are_on_disk_before_they_count_as_acknowledged(
    sink: FileSink, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(file: int) -> None:
        real(file)
        synced.append(path.read_text())

    monkeypatch.setattr(os, "fsync", fsync)
    sink.write([message(0)])
    assert synced == [LINE]


def test_the_begin_and_the_end_of_a_copy_leave_no_line(sink: FileSink, path: Path) -> None:
    sink.begin_copy(1, "oplog")
    sink.end_copy(1, "oplog")
    assert path.read_text() == ""


def test_lines_are_appended_to_those_of_an_earlier_process(sink: FileSink, path: Path) -> None:
    sink.write([message(0), message(1)])
    sink.close()
    sink.open()
    sink.write([message(2)])
    assert offsets(path) == [0, 1, 2]


@pytest.mark.parametrize("cut", range(1, len(LINE)))
def test_a_torn_last_line_is_cut_at_every_byte(cut: int, path: Path) -> None:
    path.write_text(LINE + LINE[:cut])
    sink = FileSink(FileOptions(str(path)), Path("/nowhere"))
    sink.open()
    assert path.read_text() == LINE
    sink.write([message(1)])
    sink.close()
    assert offsets(path) == [0, 1]


def test_a_torn_line_longer_than_a_block_is_cut(path: Path, sink: FileSink) -> None:
    sink.close()
    path.write_text(LINE + LINE[:-4] + "x" * 200_000)
    sink.open()
    assert path.read_text() == LINE


def test_zeros_that_a_crash_of_the_machine_left_are_cut(path: Path, sink: FileSink) -> None:
    sink.close()
    path.write_bytes(LINE.encode() + bytes(5000))
    sink.open()
    assert path.read_text() == LINE


def test_a_last_line_of_another_program_is_not_cut(path: Path) -> None:
    path.write_text("a letter\nYours, Ann")
    with pytest.raises(SinkError, match="not one of this sink"):
        FileSink(FileOptions(str(path)), path.parent).open()
    assert path.read_text() == "a letter\nYours, Ann"


def test_two_sinks_do_not_write_one_file(sink: FileSink, path: Path) -> None:
    with pytest.raises(SinkError, match="another process writes") as caught:
        FileSink(FileOptions(str(path)), path.parent).open()
    assert not caught.value.transient
    sink.write([message(0)])
    assert offsets(path) == [0]


def test_a_file_that_another_process_renamed_is_begun_anew(sink: FileSink, path: Path) -> None:
    aside = path.with_name("aside")
    sink.write([message(0)])
    path.rename(aside)
    sink.write([message(1)])
    sink.write([message(2)])
    assert (offsets(aside), offsets(path)) == ([0], [1, 2])
    path.unlink()
    sink.write([message(3)])
    assert offsets(path) == [3]


def test_a_file_that_another_process_emptied_goes_on_without_a_hole(
    sink: FileSink, path: Path
) -> None:
    sink.write([message(0)])
    os.truncate(path, 0)
    sink.write([message(1)])
    assert offsets(path) == [1]


def test_without_rotate_bytes_one_file_takes_all(sink: FileSink, path: Path) -> None:
    for offset in range(50):
        sink.write([message(offset)])
    assert list(path.parent.iterdir()) == [path]


def test_a_file_of_rotate_bytes_is_set_aside_above_the_largest_number(path: Path) -> None:
    path.with_name("out.jsonl.7").write_text("kept")
    path.with_name("out.jsonl.old").write_text("kept")
    sink = FileSink(FileOptions(str(path), rotate_bytes=2 * len(LINE)), path.parent)
    sink.open()
    for offset in range(5):
        sink.write([message(offset)])
    sink.close()
    assert offsets(path) == [4]
    assert offsets(path.with_name("out.jsonl.8")) == [0, 1]
    assert offsets(path.with_name("out.jsonl.9")) == [2, 3]
    assert path.with_name("out.jsonl.7").read_text() == "kept"
    assert len(list(path.parent.iterdir())) == 5


@pytest.mark.parametrize("written", [0, 1, 60, 115, 150])
def test_a_full_disk_is_a_transient_failure_that_leaves_no_trace(
    written: int, sink: FileSink, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.write([message(0)])
    real = os.write
    calls: list[int] = []

    def write(file: int, block: bytes) -> int:
        calls.append(len(block))
        if len(calls) == 1 and written:
            return real(file, block[:written])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(SinkError, match="No space left") as caught:
        sink.write([message(1), message(2)])
    assert caught.value.transient
    assert path.read_text() == LINE
    monkeypatch.undo()
    sink.write([message(1), message(2)])
    assert offsets(path) == [0, 1, 2]


def test_a_failed_sync_is_a_transient_failure_that_leaves_no_trace(
    sink: FileSink, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(SinkError, match="Input/output error") as caught:
        sink.write([message(0)])
    assert caught.value.transient
    assert path.read_text() == ""


def test_a_message_that_is_no_json_is_named_and_nothing_is_written(
    sink: FileSink, path: Path
) -> None:
    bad = message(1)
    bad.data = {"a": object()}
    with pytest.raises(SinkError, match=r"offset 1\) cannot be written as JSON") as caught:
        sink.write([message(0), bad])
    assert (caught.value.transient, caught.value.index) == (False, 1)
    late = message(2)
    late.timestamp = 1 << 62
    with pytest.raises(SinkError) as caught:
        sink.write([late])
    assert (caught.value.transient, caught.value.index) == (False, 0)
    assert path.read_text() == ""


@pytest.mark.parametrize("name", ["missing/out.jsonl", "."])
def test_a_path_that_cannot_be_opened_is_a_permanent_failure_at_open(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(SinkError, match="path: cannot write") as caught:
        FileSink(FileOptions(name), tmp_path).open()
    assert not caught.value.transient


def test_a_path_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="is no regular file"):
        FileSink(FileOptions("/dev/null"), tmp_path).open()
