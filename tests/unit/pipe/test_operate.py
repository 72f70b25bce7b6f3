"""The commands that read and change the folder of a pipe, on folders that a commit log has made."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oplog_pipe.cli import main
from oplog_pipe.commitlog import CommitLog, Mode, NewEntry, OffsetLog
from oplog_pipe.commitlog.offsets import COPY_DUE, WHOLE_SINCE, not_whole_key
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.model.record import EntryRecord, control_key, encode_record

SOURCE = "system/oplog"
SETTINGS = """\
dir: ./pipe
sources: [{agents: [http://localhost:8042], log: system/oplog}]
sinks:
  - {name: search, type: file, path: a.jsonl}
  - {name: copy, type: file, path: b.jsonl}
"""


class Pipe:
    """A folder with settings. Entries: reset, three states, live, then one change."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.dir = root / "pipe"
        self.file = root / "pipe.yaml"
        self.file.write_text(SETTINGS)
        self._capsys = capsys

    def fill(self) -> None:
        control = control_key(SOURCE)
        log = CommitLog.open(self.dir, clock=lambda: 1_790_000_000_000)
        log.append([self.entry(control, "reset", mode=Mode.COPY)])
        states = (("video", "x1"), ("cut", "y"), ("video", "x2"))
        log.append([self.entry(name, "insert", id, Mode.COPY) for name, id in states])
        log.append([self.entry(control, "live", mode=Mode.COMPLETE)])
        log.append([self.entry("video", "update", "x1")])
        log.close()

    def entry(self, key: str, op: Any, id: str = "", mode: Mode = Mode.SYNC) -> NewEntry:
        copy = 0 if mode is not Mode.SYNC else None
        data = msgspec.Raw(b"" if op in ("reset", "live") else b'{"id":"%s"}' % id.encode())
        record = EntryRecord(SOURCE, "p1", op, id, copy, data or msgspec.Raw(b"null"))
        return NewEntry(1_415_271_879_041, mode, key, encode_record(record))

    def flush(self, name: str, offsets: Mapping[str, int]) -> None:
        log = OffsetLog.open(self.dir, name)
        log.write(offsets)
        log.close()

    def offsets(self, name: str) -> dict[str, int]:
        return OffsetLog.view(self.dir, name).offsets

    def compacted(self, offset: int) -> None:
        """Tell that entries up to this offset may be missing."""
        about = self.dir / "pipe.json"
        about.write_text(json.dumps({**json.loads(about.read_text()), "compacted": offset}))

    def files(self) -> dict[str, bytes]:
        """Return the files without the index, which is derived and written at each open."""
        paths = (path for path in self.dir.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.dir)): path.read_bytes()
            for path in paths
            if path.suffix != ".index"
        }

    def run(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Return the exit code, and the lines of stdout and stderr."""
        code = main([*arguments, "-f", str(self.file)])
        told = self._capsys.readouterr()
        here = f"{self.dir.parent}/"
        return code, told.out.splitlines(), told.err.replace(here, "").splitlines()

    def out(self, *arguments: str) -> list[str]:
        code, out, err = self.run(*arguments)
        assert (code, err) == (0, [])
        return out

    def json(self, *arguments: str) -> Any:
        (line,) = self.out(*arguments, "--json")
        return json.loads(line)

    def refused(self, *arguments: str, code: int = 2) -> str:
        """Return the message of a command that changes nothing."""
        before = self.files()
        found, out, (message,) = self.run(*arguments)
        assert (found, out) == (code, [])
        assert self.files() == before
        return message.removeprefix("oplog-pipe: ")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the lock as a running pipe does: a lock counts per open file, not per process."""
        log = CommitLog.open(self.dir)
        try:
            yield
        finally:
            log.close()


@pytest.fixture
def pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pipe:
    found = Pipe(tmp_path, capsys)
    found.fill()
    return found


def test_a_folder_without_a_log_is_not_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = Pipe(tmp_path, capsys)
    for command in (
        ("log", "oldest"), ("log", "show", "1"), ("offset", "list"),
        ("offset", "ack", "copy", "0"), ("offset", "reset", "copy", "0"),
        ("offset", "delete", "copy"),
    ):  # fmt: skip
        assert pipe.refused(*command, code=1) == "pipe holds no commit log"
    assert not pipe.dir.exists()


def test_oldest_and_current_print_offsets(pipe: Pipe) -> None:
    assert pipe.out("log", "oldest") == ["0"]
    assert pipe.out("log", "current") == ["5"]
    assert pipe.json("log", "current") == {"offset": 5}


def test_an_empty_log_has_no_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = Pipe(tmp_path, capsys)
    CommitLog.open(pipe.dir).close()
    for which in ("oldest", "current"):
        assert pipe.refused("log", which, code=1) == "the log is empty"
        assert pipe.json("log", which) == {"offset": None}
    assert pipe.refused("log", "show", "0", code=1) == "there is no entry 0: the log is empty"
    assert pipe.out("status")[1] == "log: empty"


def test_show_prints_one_entry_by_fields_and_several_by_lines(pipe: Pipe) -> None:
    assert pipe.out("log", "show", "1") == [
        "offset:    1",
        "timestamp: 2014-11-06T11:04:39.041Z (1415271879041)",
        "mode:      copy",
        "namespace: video",
        "op:        insert",
        "id:        x1",
        "source:    system/oplog",
        "position:  p1",
        "copy:      0",
        'data:      {"id":"x1"}',
    ]
    time = "2014-11-06T11:04:39.041Z"
    assert pipe.out("log", "show", "3..9") == [
        f'3  {time}  copy      insert  video  x2  {{"id":"x2"}}',
        f"4  {time}  complete  live  system/oplog",
        f'5  {time}  sync      update  video  x1  {{"id":"x1"}}',
    ]
    found = [json.loads(line) for line in pipe.out("log", "show", "4..5", "--json")]
    assert [(each["offset"], each["mode"], each["op"]) for each in found] == [
        (4, "complete", "live"), (5, "sync", "update"),
    ]  # fmt: skip
    assert found[1] == {
        "offset": 5, "timestamp": 1_415_271_879_041, "mode": "sync", "namespace": "video",
        "op": "update", "id": "x1", "source": SOURCE, "position": "p1", "copy": None,
        "data": {"id": "x1"},
    }  # fmt: skip


def test_show_tells_why_there_is_no_entry(pipe: Pipe) -> None:
    assert pipe.refused("log", "show", "6", code=1) == "there is no entry 6: the newest one is 5"
    assert pipe.refused("log", "show", "7..8", code=1) == (
        "there is no entry from 7 to 8: the newest one is 5"
    )
    assert pipe.refused("log", "show", "5..3") == "X[..Y]: '5..3' ends before it begins"
    assert pipe.refused("log", "show", "x") == (
        "X[..Y]: 'x' is no offset such as 12, and no range such as 12..20"
    )


def test_list_has_the_sinks_of_settings_and_folder_with_their_lag(pipe: Pipe) -> None:
    pipe.flush("search", {"video": 3, "cut": 2})
    pipe.flush("old", {"": 1})
    assert pipe.out("offset", "list") == [
        "SINK    OFFSET  LAG",
        "search       3    2",
        "copy      none    6",
        "old          1    4  not in the settings: holds compaction back",
    ]
    old = {"name": "old", "type": None, "offset": 1, "lag": 4, "in_settings": False}
    assert pipe.json("offset", "list")[2] == {**old, "copy_due": False}
    assert pipe.out("offset", "show", "search") == [
        "search: offset 3, lag 2",
        "NAMESPACE  OFFSET",
        "cut             2",
        "video           3",
    ]
    assert pipe.json("offset", "show", "search")["namespaces"] == {"video": 3, "cut": 2}
    unknown = "NAME: there is no sink 'serach'; known: search, copy, old"
    for command in (("show", "serach"), ("ack", "serach", "4"), ("reset", "serach", "4")):
        assert pipe.refused("offset", *command) == unknown


def test_only_the_next_entry_of_a_sink_is_acknowledged(pipe: Pipe) -> None:
    pipe.flush("search", {"video": 1})
    assert pipe.refused("offset", "ack", "search", "3") == (
        "OFFSET: the next entry of search is 2, not 3; --force passes over those between"
    )
    assert pipe.refused("offset", "ack", "search", "1", "--force") == (
        "OFFSET: search has acknowledged 1: its offset is 1; use `offset reset` to go back"
    )
    assert pipe.out("offset", "ack", "search", "2") == [
        "search: offset 2; passed over: insert cut y"
    ]
    assert pipe.offsets("search") == {"video": 1, "cut": 2}
    assert pipe.out("offset", "ack", "search", "4", "--force")[0] == (
        "search: offset 4; passed over: live system/oplog"
    )
    assert pipe.refused("offset", "ack", "search", "6", "--force") == (
        "OFFSET: the log has no entry 6: it has 0 to 5"
    )
    assert pipe.out("offset", "ack", "search", "5")[0] == (
        "search: offset 5; passed over: update video x1"
    )
    assert pipe.refused("offset", "ack", "search", "6") == (
        "OFFSET: search has acknowledged every entry of the log"
    )


def test_a_sink_that_flushed_nothing_acknowledges_the_oldest_entry(pipe: Pipe) -> None:
    assert pipe.out("offset", "ack", "copy", "0") == [
        "copy: offset 0; passed over: reset system/oplog"
    ]
    pipe.compacted(0)
    assert pipe.refused("offset", "ack", "search", "1") == (
        "OFFSET: search has no offset yet: start the pipe first"
    )


def test_reset_goes_back_as_far_as_nothing_is_compacted(pipe: Pipe) -> None:
    pipe.flush("search", {"video": 5, "cut": 2})
    assert pipe.out("offset", "reset", "search", "1") == ["search: offset 1; before: 5"]
    assert pipe.offsets("search") == {"": 1}
    assert pipe.out("offset", "reset", "search", "-1") == ["search: offset -1; before: 1"]
    assert pipe.out("offset", "list")[1] == "search      -1    6"
    assert pipe.refused("offset", "reset", "search", "6") == (
        "OFFSET: the log has no entry 6: it has 0 to 5"
    )
    pipe.compacted(2)
    assert pipe.out("offset", "reset", "search", "2") == ["search: offset 2; before: -1"]
    for offset in ("1", "-1"):
        assert pipe.refused("offset", "reset", "search", offset) == (
            f"OFFSET: entries behind {offset} are gone: the log is compacted up to 2;"
            " use `offset delete` and `start: copy` for all objects"
        )
    assert pipe.refused("offset", "reset", "search", "-2") == (
        "OFFSET: '-2' is not a whole number of at least -1"
    )


def test_delete_removes_the_offset_log_of_one_sink(pipe: Pipe) -> None:
    pipe.flush("old", {"": 1})
    pipe.flush("search", {"": 3})
    assert pipe.out("offset", "delete", "old") == ["old: deleted, its offset was 1"]
    assert OffsetLog.names(pipe.dir) == ["search"]
    assert pipe.out("offset", "delete", "search") == [
        "search: deleted, its offset was 3; it is new at the next start"
    ]
    assert pipe.refused("offset", "delete", "search") == "NAME: search has no offset log"


def test_offsets_do_not_change_while_a_pipe_runs_and_everything_can_be_read(pipe: Pipe) -> None:
    pipe.flush("search", {"video": 1})
    with pipe.running():
        for command in (("ack", "search", "2"), ("reset", "search", "0"), ("delete", "search")):
            assert pipe.refused("offset", *command, code=1) == (
                "pipe is in use: a pipe runs; stop it first"
            )
        before = pipe.files()
        assert pipe.out("log", "current") == ["5"]
        assert pipe.json("offset", "show", "search")["offset"] == 1
        assert pipe.out("log", "show", "0..5")[5].startswith("5  ")
        assert len(pipe.out("status")) == 9
        assert pipe.files() == before
    pipe.out("offset", "ack", "search", "2")


def test_status_shows_the_folder(pipe: Pipe) -> None:
    pipe.flush("search", {"video": 3})
    pipe.flush("old", {"": 1})
    sources = pipe.json("status")["sources"]
    assert (sources[0]["phase"], sources[0]["position"]) == ("copy", "0")
    Checkpoints(pipe.dir).save(SOURCE, SourceCheckpoint(SOURCE, "p9", 2, 0, 1234, 5000))
    size = (pipe.dir / f"{0:020}.log").stat().st_size
    assert pipe.out("status") == [
        "pipe: figures from its folder; set listen to see those of a running pipe",
        f"log: offsets 0 to 5, {size} bytes in 1 segment"
        if size < 1000
        else f"log: offsets 0 to 5, {size / 1000:.1f} KB in 1 segment",
        "",
        "SOURCE        PHASE                 POSITION",
        "system/oplog  copy: 1,234 of 5,000  p9",
        "",
        "SINK    TYPE                 FLUSHED  LAG",
        "search  file                       3    2",
        "copy    file                    none    6",
        "old     not in the settings        1    4",
    ]
    told, unbound = {"not_whole": [], "copy_due": False}, {"max_bytes": None, "waits": None}
    assert pipe.json("status") == {
        "live": False,
        "log": {"oldest": 0, "end": 6, "bytes": size, "segments": 1, "compacted": -1, **unbound},
        "sources": [
            {
                "name": SOURCE, "log": SOURCE, "phase": "copy", "position": "p9",
                "copied": 1234, "copy_total": 5000,
            },
        ],
        "sinks": [
            {"name": "search", "type": "file", "flushed": 3, "lag": 2, **told},
            {"name": "copy", "type": "file", "flushed": -1, "lag": 6, **told},
            {"name": "old", "type": None, "flushed": 1, "lag": 4, **told},
        ],
    }  # fmt: skip
    pipe.compacted(2)
    assert pipe.out("status")[1].endswith("in 1 segment, compacted up to 2")


def test_a_damaged_file_is_named_and_no_traceback_is_shown(pipe: Pipe) -> None:
    log = CommitLog.open(pipe.dir)
    log.append([NewEntry(0, Mode.SYNC, "video", b"{")])
    log.close()
    assert pipe.refused("log", "show", "6", code=1).startswith("the entry 6 is no record: ")
    (pipe.dir / "sources").mkdir()
    (pipe.dir / "sources/system%2Foplog.json").write_text("{")
    assert pipe.refused("status", code=1).startswith("pipe/sources/system%2Foplog.json is damaged")


def test_a_copy_is_repeated_at_the_next_start_for_the_sources_that_have_copies(pipe: Pipe) -> None:
    assert pipe.out("copy") == ["system/oplog: copies all objects at the next start"]
    found = Checkpoints(pipe.dir).load(SOURCE)
    assert found == SourceCheckpoint(SOURCE, "0", 6)
    assert pipe.out("copy", SOURCE) == ["system/oplog: copies all objects at the next start"]
    assert "there is no source 'x'; known: system/oplog" in pipe.refused("copy", "x")
    with pipe.running():
        assert "a pipe runs; stop it first" in pipe.refused("copy", code=1)
    pipe.file.write_text(SETTINGS.replace("log: system/oplog", "log: shop/orders"))
    assert "all of them are topics" in pipe.refused("copy")
    assert "topics have no copy" in pipe.refused("copy", "shop/orders")


def test_a_message_that_is_passed_over_by_hand_is_noted(pipe: Pipe) -> None:

    def since() -> int:
        return OffsetLog.view(pipe.dir, "search").whole_since

    pipe.flush("search", {"video": 1, WHOLE_SINCE: -1})
    pipe.out("offset", "ack", "search", "2")
    assert since() == 2
    pipe.out("offset", "reset", "search", "4")
    assert since() == 4
    pipe.out("offset", "reset", "search", "3")
    assert since() == 3
    pipe.flush("search", {"video": 5, not_whole_key(SOURCE): 4})
    pipe.out("offset", "reset", "search", "4")
    assert since() == 3
    (sentence,) = [line for line in pipe.out("status") if "copy not whole" in line]
    assert "run `oplog-pipe copy system/oplog` while the pipe is stopped" in sentence
    assert pipe.json("status")["sinks"][0]["not_whole"] == [SOURCE]
    assert pipe.json("offset", "show", "search")["namespaces"].keys() == {"", "video"} - {"video"}


def test_a_sink_that_gave_up_its_place_is_shown_until_its_copy_begins(pipe: Pipe) -> None:
    pipe.file.write_text("max_log_bytes: 2 MB\n" + SETTINGS)
    pipe.flush("search", {"": 4, WHOLE_SINCE: 4, COPY_DUE: 4, not_whole_key(SOURCE): 4})
    lines = [
        *pipe.out("status"),
        *pipe.out("offset", "list"),
        *pipe.out("offset", "show", "search"),
    ]
    assert sum("gave up its place" in line for line in lines) == 3
    assert " of at most 2.0 MB in 1 segment" in lines[1]
    status = pipe.json("status")
    assert (status["sinks"][0]["copy_due"], status["log"]["max_bytes"]) == (True, 2 << 20)
    assert pipe.json("offset", "list")[0]["copy_due"]
    pipe.flush("search", {COPY_DUE: -1})
    assert not any("gave up" in line for line in (*pipe.out("status"), *pipe.out("offset", "list")))


def test_rows_of_a_sink_without_owners_cannot_be_adopted(pipe: Pipe) -> None:
    adopt = ("adopt", "search", "--from", "old/search")
    assert "has no rows with owners: its type is file" in pipe.refused(*adopt)
    assert "there is no sink 'x' in the settings; known: search, copy" in pipe.refused(
        "adopt", "x", "--from", "old/x"
    )
