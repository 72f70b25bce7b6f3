"""The commit log on a real folder."""

import sys
import tempfile
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog_pipe.commitlog import CommitLog, Compaction, LogEntry, Mode, NewEntry, OffsetLog
from oplog_pipe.errors import LogDamagedError, LogError, LogLockedError
from tests.kits.models.properties import examples
from tests.kits.processes import forked


def new(offset: int, key: str = "k", size: int = 10) -> NewEntry:
    return NewEntry(-offset, Mode(offset % 3), key, b"%d:" % offset + b"x" * size)


def everything(log: CommitLog, start: int = 0) -> list[LogEntry]:
    found: list[LogEntry] = []
    while part := log.read(found[-1].offset + 1 if found else start):
        found += part
    return found


def test_an_entry_has_the_agreed_bytes(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    log.append([NewEntry(1, Mode.COPY, "a", b""), NewEntry(-2, Mode.COMPLETE, "ké", b"data")])
    log.close()
    content = (tmp_path / f"{0:020d}.log").read_bytes()
    second = bytes.fromhex(
        "0000000000000001"  # offset
        "0000001c"  # length
        "fffffffffffffffe"  # timestamp
        "02"  # mode
        "00000003" + "ké".encode().hex() + "00000004" + b"data".hex()
    )
    assert content[34:-4] == second
    assert content[-4:] == zlib.crc32(second).to_bytes(4)


def test_compaction_keeps_the_last_entry_per_key_of_the_closed_segments(tmp_path: Path) -> None:
    keys = ["C" if each % 2 else "B" for each in range(14)] + ["C", "B", "A"]
    entries = [new(offset, key) for offset, key in enumerate(keys)]
    size = sum(33 + len(each.key) + len(each.data) for each in entries)
    log = CommitLog.open(tmp_path, max_segment_bytes=size)
    log.append(entries)
    log.append([new(offset, "ABC"[offset % 3], 1) for offset in range(17, 34)])
    assert [(each.base, each.newest, each.closed) for each in log.segments] == [
        (0, 16, True),
        (17, 33, False),
    ]
    assert log.compact(15) == Compaction(0, 0)
    assert log.compacted == -1
    offsets = OffsetLog.open(tmp_path, "sink")
    for offset in range(17, 28):
        offsets.write({"CBA"[(27 - offset) % 3] if offset > 23 else "B": offset})
    offsets.replace({"A": 26, "B": 23, "C": 27})
    assert [each.offset for each in log.read(0, max_entries=10)] == list(range(10))
    assert log.compact(min(offsets.offsets.values())).entries == 14
    # A reader goes on in the middle of the segment that was compacted.
    assert [each.offset for each in log.read(10)] == [14, 15, 16]
    assert [each.offset for each in everything(log) if each.offset < 17] == [14, 15, 16]
    assert (log.oldest, log.compacted, log.end) == (14, 16, 34)
    assert log.compact(27) == Compaction(0, 0)
    assert log.entry(13) is None
    log.close()
    again = CommitLog.open(tmp_path, max_segment_bytes=size)
    assert [each.offset for each in everything(again)] == [14, 15, 16, *range(17, 34)]
    assert (again.oldest, again.compacted, again.end) == (14, 16, 34)
    again.close()
    assert OffsetLog.open(tmp_path, "sink").offsets == {"A": 26, "B": 23, "C": 27}


def test_an_offset_log_compacts_itself_and_may_go_backwards(tmp_path: Path) -> None:
    offsets = OffsetLog.open(tmp_path, "a/b .")
    assert (offsets.offset, OffsetLog.names(tmp_path)) == (None, [])
    sizes = set()
    for each in range(1500):
        offsets.write({"AB"[each % 2]: each})
        sizes.add((tmp_path / "offsets" / "a%2Fb%20..log").stat().st_size)
    assert max(sizes) < 1030 * 40
    assert OffsetLog.open(tmp_path, "a/b .").offsets == {"A": 1498, "B": 1499}
    offsets.replace({"A": -1})
    assert OffsetLog.view(tmp_path, "a/b .").offset == -1
    assert OffsetLog.names(tmp_path) == ["a/b ."]
    OffsetLog.delete(tmp_path, "a/b .")
    OffsetLog.delete(tmp_path, "a/b .")
    assert OffsetLog.names(tmp_path) == []


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 90)), max_size=12),
        ),
        st.tuples(st.sampled_from(["reopen", "no index", "torn tail"]), st.none()),
        st.tuples(st.just("compact"), st.integers(-1, 60)),
        st.tuples(st.just("read"), st.integers(0, 60)),
    ),
    max_size=25,
)


@pytest.mark.thorough
@examples(2)
@given(STEPS)
def test_a_log_does_as_a_list(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = CommitLog.open(folder, max_segment_bytes=300)
        view = CommitLog.view(folder)
        model: list[LogEntry] = []
        end = 0
        for step, value in steps:
            if step == "append":
                assert isinstance(value, list)
                batch = [new(end + at, *each) for at, each in enumerate(value)]
                assert log.append(batch) == end
                model += [LogEntry(end + at, *each) for at, each in enumerate(batch)]
                end += len(batch)
            elif step == "compact":
                assert isinstance(value, int)
                closed = [each for each in log.segments if each.closed and each.newest <= value]
                last = closed[-1].newest if closed else -1
                kept = {each.key: each for each in model if each.offset <= last}
                model = sorted(kept.values()) + [each for each in model if each.offset > last]
                log.compact(value)
            elif step == "read":
                assert isinstance(value, int)
                expected = [each for each in model if each.offset >= value]
                assert everything(log, value) == expected
                found = log.read(value, 100, 3)
                assert found == expected[: len(found)]
                assert bool(found) == bool(expected)
                view.refresh()
                assert everything(view, value) == expected
            else:
                log.close()
                if step == "no index":
                    for path in folder.glob("*.index"):
                        path.unlink()
                elif step == "torn tail":
                    with log.segments[-1].path.open("ab") as file:
                        file.write(b"\0\0\0\0\0\0\0")
                log = CommitLog.open(folder, max_segment_bytes=300)
            assert (log.end, log.bytes) == (end, sum(each.bytes for each in log.segments))
            assert log.oldest == (model[0].offset if model else None)
        assert everything(log) == model
        log.close()


def test_damage_before_the_tail_names_the_file_and_the_place(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, max_segment_bytes=500)
    log.append([new(each) for each in range(20)])
    log.close()
    closed, newest = log.segments[0].path, log.segments[-1].path
    size = 34 + len(new(0).data)
    for path, place in ((closed, size), (newest, 0)):
        content = path.read_bytes()
        path.write_bytes(content[: place + 30] + b"?" + content[place + 31 :])
        message = f"{path} is damaged at byte {place}"
        with pytest.raises(LogDamagedError, match=message):
            everything(CommitLog.view(tmp_path))
        path.write_bytes(content)
    newest.write_bytes(content[:-1])
    place = len(content) - 34 - len(new(19).data)
    with pytest.raises(LogDamagedError, match=f"{newest} is damaged at byte {place}"):
        CommitLog.open(tmp_path)


def test_damage_is_found_without_an_index_too(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    log.append([new(each) for each in range(20)])
    log.close()
    path = log.segments[0].path
    content = path.read_bytes()
    place = 34 + len(new(0).data)
    path.write_bytes(content[: place + 30] + b"?" + content[place + 31 :])
    path.with_suffix(".index").unlink()
    with pytest.raises(LogDamagedError, match=f"{path} is damaged at byte {place}:"):
        CommitLog.open(tmp_path)


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, max_segment_bytes=200)
    log.append([new(each) for each in range(20)])
    log.close()
    log.segments[2].path.unlink()
    with pytest.raises(LogDamagedError, match="are missing"):
        CommitLog.open(tmp_path)


def test_a_folder_without_a_log_cannot_be_viewed(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="holds no commit log"):
        CommitLog.view(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_second_handle_and_a_second_process_are_locked_out(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    with pytest.raises(LogLockedError, match="is in use by another process"):
        CommitLog.open(tmp_path)
    code = (
        "import sys, pathlib; from oplog_pipe.commitlog import CommitLog\n"
        "CommitLog.open(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    refused = forked.run(command, capture_output=True, text=True, check=False)
    assert refused.stderr.splitlines()[-1].startswith("oplog_pipe.errors.LogLockedError: ")
    log.close()
    assert forked.run(command, check=False).returncode == 0


def test_readers_see_everything_while_the_log_grows_and_is_compacted(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, max_segment_bytes=5_000)
    total = 6_000
    seen: list[list[int]] = [[], []]

    def read(found: list[int]) -> None:
        at = 0
        while at < total:
            assert log.wait(at, 60)
            found += [each.offset for each in log.read(at, 4_000)]
            at = found[-1] + 1

    threads = [threading.Thread(target=read, args=[each]) for each in seen]
    for thread in threads:
        thread.start()
    for first in range(0, total, 50):
        log.append([new(each, "abc"[each % 3]) for each in range(first, first + 50)])
        log.compact(min(each[-1] if each else -1 for each in seen))
    for thread in threads:
        thread.join()
    assert seen == [list(range(total))] * 2
    log.compact(total)
    assert len(log.segments) < 10
    log.close()


def test_a_wait_ends_by_an_entry_a_wake_or_its_time(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    assert not log.wait(0, 0)
    log.append([new(0)])
    assert log.wait(0)
    results: list[bool] = []
    waiting = threading.Thread(target=lambda: results.append(log.wait(1)))
    waiting.start()
    while not results:
        log.wake()
        waiting.join(0.01)
    assert results == [False]
    log.close()
