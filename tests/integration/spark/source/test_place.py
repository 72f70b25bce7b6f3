"""A SQLite file is read on the machine that planned the read, and on no other one."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StructType

from oplog_sync.errors import OptionError
from oplog_sync.source import OplogDataSource
from oplog_sync.source.columns import full_schema
from oplog_sync.source.place import Place, check_local, check_place, check_task, here
from tests.integration.spark.source.streams import reader_of
from tests.kits.spark.helpers import append, operation

BOOT, MACHINE = "proc/sys/kernel/random/boot_id", "etc/machine-id"


def machine(root: Path, host: str = "a", **texts: str) -> Place:
    """Return the place of a machine with these identifiers: ``boot``, ``id``."""
    for key, name in (("boot", BOOT), ("id", MACHINE)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get(key, key) + "\n")
    return here(root, host)


def test_two_processes_of_a_machine_are_at_the_same_place(tmp_path: Path) -> None:
    check_place(here(), pickle.loads(pickle.dumps(here())))
    check_place(machine(tmp_path), machine(tmp_path))


@pytest.mark.parametrize("change", [{"host": "b"}, {"boot": "another"}, {"id": "another"}])
def test_another_kernel_another_system_and_another_container_are_other_places(
    tmp_path: Path, change: dict[str, str]
) -> None:
    planned, current = machine(tmp_path / "1"), machine(tmp_path / "2", **change)
    with pytest.raises(OptionError, match=r"option store: a SQLite store is a file of one machine"):
        check_place(planned, current)


def test_the_error_names_both_machines_or_says_that_they_have_the_same_name(tmp_path: Path) -> None:
    planned = machine(tmp_path / "1", host="driver")
    with pytest.raises(OptionError) as told:
        check_place(planned, machine(tmp_path / "2", host="worker"))
    assert str(told.value) == (
        "option store: a SQLite store is a file of one machine. driver planned the task, which "
        "runs on worker; use a local master, its agents (option agent), or a store in MongoDB"
    )
    with pytest.raises(OptionError, match="runs on another machine named driver;"):
        check_place(planned, machine(tmp_path / "3", host="driver", boot="another"))


def test_a_system_without_identifiers_is_known_by_its_host_name(tmp_path: Path) -> None:
    check_place(here(tmp_path, "a"), here(tmp_path, "a"))
    with pytest.raises(OptionError):
        check_place(here(tmp_path, "a"), here(tmp_path, "b"))


def test_a_place_shows_no_machine_id(tmp_path: Path) -> None:
    place = machine(tmp_path, id="0123456789abcdef")
    assert "0123456789abcdef" not in repr(place)
    assert place.host == "a"


@pytest.mark.parametrize("master", [None, "local", "local[4]", "local-cluster[2,1,512]"])
def test_a_local_master_and_an_unknown_one_are_taken(master: str | None) -> None:
    check_local(master)


@pytest.mark.parametrize("master", ["spark://db1:7077", "yarn", "k8s://https://c:6443"])
def test_a_master_with_other_machines_is_refused_and_named(master: str) -> None:
    with pytest.raises(OptionError, match="which the executors of " + master):
        check_local(master)


def test_a_task_knows_the_master_and_the_place_of_its_planner(spark: SparkSession) -> None:
    planned = here()

    def found() -> tuple[str | None, bool]:
        check_task(planned)
        task = TaskContext.get()
        assert task is not None
        return task.getLocalProperty("spark.master"), here() == planned

    function = udf(lambda _: found(), "struct<master string, same boolean>")
    (row,) = spark.range(1).select(function("id").alias("found")).collect()
    assert tuple(row.found) == (spark.sparkContext.master, True)


def test_each_read_and_write_of_a_file_checks_the_machine(tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", "1")])
    file = {"store": str(store)}
    stream = reader_of({**file, "start": "oldest"})
    start = stream.initialOffset()
    planned: list[tuple[Any, Any]] = [
        (stream, stream.partitions(start, stream.latestOffset(start))[0])
    ]
    for options in (file, {**file, "table": "operations"}):
        reader: Any = OplogDataSource(options).reader(full_schema())
        planned.append((reader, reader.partitions()[0]))
    columns = StructType([full_schema()[name] for name in ("event", "type", "id")])
    writer: Any = OplogDataSource(file).writer(columns, overwrite=False)
    for each in (*(reader for reader, _ in planned), writer):
        each._planned = Place("elsewhere", "another machine")
    for reader, part in planned:
        with pytest.raises(OptionError, match="elsewhere planned the task"):
            list(reader.read(part))
    with pytest.raises(OptionError, match="elsewhere planned the task"):
        writer.write(iter([]))
