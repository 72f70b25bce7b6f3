"""Two drivers write one table. Whatever the order of their steps, it has each row once."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from oplog_pipe.errors import BrokenBatchError, FencedError
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.tables.history import HistoryFolder
from oplog_pipe.spark.tables.mark import Mark
from oplog_pipe.spark.tables.swap import Swap
from oplog_pipe.spark.tasks.work import SinkWork
from tests.unit.pipe.spark.orders import Driver, Files, orders

OWNER = "p/s"
# Of the driver that goes on. With one more the tests take three times as long.
CHANGES = 3
ENDS = {
    ("done", "done"), ("done", "fenced"), ("done", "broken"), ("fenced", "done"),
    ("fenced", "broken"), ("broken", "done"), ("broken", "fenced"), ("broken", "broken"),
}  # fmt: skip


def work(run: str) -> SinkWork:
    sink = SinkSettings("s", "m:C", CustomOptions("m:C"))
    return SinkWork("p", Path("/"), "sinks[0]", sink, {}, run)


def driver(name: str, batch: Callable[[Folders, str], None]) -> Driver:
    def run(folders: Folders) -> str:
        try:
            batch(folders, name)
        except FencedError:
            return "fenced"
        except (BrokenBatchError, OSError):
            return "broken"
        return "done"

    return run


def append(folders: Folders, run: str) -> None:
    table = HistoryFolder(folders, "/t", work(run), 7)
    table.start()
    if not table.has(0, ["end"]):
        for each in "12":
            folders.write(f"{table.part.rows}/{each}", each.encode())
        table.publish(0, {}, ["end"])


@pytest.mark.parametrize("is_nesting", [True, False])
def test_a_history_has_a_batch_of_two_drivers_once(is_nesting: bool) -> None:
    drivers = [driver(each, append) for each in "AB"]
    whole = {f"/t/oplog_batch=000000000007-000000000/{each}": each for each in "12"}
    ends = set()
    for files, ended in orders({}, drivers, is_nesting=is_nesting, changes=CHANGES):
        rows = {path: text for path, text in files.items() if "/_" not in path}
        assert rows == whole or (not rows and "done" not in ended), files
        if all(ended):
            ends.add(tuple(ended))
    assert ends == ENDS


def replace(folders: Folders, run: str) -> None:
    swap = Swap(folders, "/t", work(run))
    swap.start()
    mark = swap.present()
    number, rows = 1, ""
    if mark is not None:
        rows = "".join(map(folders.read, folders.names("/t/1")))
        if not rows:
            raise FileNotFoundError
        number = mark.number + 1
    folders.write(f"{swap.part.rows}/1{run}", f"{rows}{run}".encode())
    swap.publish(Mark(OWNER, 7, number, run=run))


def tables(files: Files) -> dict[int, tuple[str, str]]:
    """Return the place and the rows of each table, by its number."""
    found = {}
    for path, text in files.items():
        folder, name = path.rsplit("/", 1)
        if name == "_oplog_pipe" and re.fullmatch(r"/t|/_t\.before-\w+", folder):
            mark = msgspec.json.decode(text, type=Mark)
            assert mark.number not in found
            found[mark.number] = folder, files[f"{folder}/1{mark.run}"]
    return found


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("is_nesting", [True, False])
def test_a_mirror_of_two_drivers_keeps_what_each_has_written(
    is_nesting: bool, has_table: bool
) -> None:
    drivers = [driver(each, replace) for each in "AB"]
    mark = msgspec.json.encode(Mark(OWNER, 7, 1, run="Z")).decode()
    start = {"/t/1Z": "Z", "/t/_oplog_pipe": mark} if has_table else {}
    ends = set()
    for files, ended in orders(start, drivers, is_nesting=is_nesting, changes=CHANGES):
        found = tables(files)
        place, rows = found[max(found)] if found else ("", "")
        assert place == "/t" or "/t" not in dict(found.values()), files
        assert {"Z"} - set(rows) == (set() if has_table else {"Z"})
        for name, end in zip("AB", ended, strict=True):
            assert end != "done" or name in rows
        if all(ended):
            ends.add(tuple(ended))
            assert "done" not in ended or place == "/t", (ended, files)
    assert ends == ENDS
