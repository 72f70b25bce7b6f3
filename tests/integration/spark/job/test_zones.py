"""The same dump in every form and time zone gives the same corrections, or a clear error."""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError
from oplog_sync.job import run
from oplog_sync.jvm import java_class
from oplog_sync.settings import command
from tests.integration.spark.conftest import ZONE
from tests.integration.spark.dumps.dumps import write_forms, write_parquet
from tests.kits.spark.helpers import (
    Json,
    append,
    dump_state,
    objects_of,
    operation,
    read_lines,
    refusal,
    row,
    write_dump,
)

# Hours that no local clock shows, hours that it shows twice, and the first year.
_EDGES = (
    "2021-03-14T02:30:00.000Z",
    "2021-03-28T02:30:00.000Z",
    "2021-11-07T01:30:00.000Z",
    "2021-10-31T02:30:00.001Z",
    "0001-01-01T00:00:00.000Z",
)

# One on each side of UTC, each with hours that its clock skips and shows twice.
_CITIES = {ZONE: "New York", "Europe/Berlin": "Berlin"}

# The forms that differ in how they write a time. "Parquet without zone" is compared by the job.
_FORMS_OF_TIME = ("JSON lines", "Parquet with zone", "CSV without zone")


class History(NamedTuple):
    """Arguments for each form of a dump, the objects in it, and the corrections that it needs."""

    forms: dict[str, list[str]]
    objects: dict[str, str]
    corrections: list[Any]


# Arguments for each dump with an edge, and its corrections.
Edges = tuple[dict[str, list[str]], dict[str, Any]]


@pytest.fixture(scope="module")
def history(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Return the forms of a real project's dump.

    The store has half of the project's history; the dump is from its end.
    """
    folder = tmp_path_factory.mktemp("history")
    rows = read_lines(shared_data / "flask/dump.jsonl.gz")
    half = json.loads((shared_data / "flask/expected.json").read_text())["half"]
    operations = read_lines(shared_data / "flask/ops.jsonl.gz")[: half["ops"]]
    operations += [operation("insert", "edge", str(n), at, "a") for n, at in enumerate(_EDGES)]
    rows += [row("edge", str(n), at, "a") for n, at in enumerate(_EDGES)]
    append(folder / "oplog.db", operations)
    states = {(each["type"], each["id"]): each for each in operations}
    expected, unchanged = _expected(states, rows)
    assert [
        sum(line[0] == event for line in expected) for event in ("insert", "update", "delete")
    ] == [
        half["insert"],
        half["update"],
        half["delete"],
    ]
    store = ["--store", str(folder / "oplog.db"), "--max-deletes", "100%"]
    forms = write_forms(folder, rows, unchanged)
    return History(
        {name: [*store, *argv] for name, argv in forms.items()}, dump_state(rows), expected
    )


def _expected(
    states: dict[tuple[str, str], Json], rows: list[Json]
) -> tuple[list[Any], list[Json]]:
    """Return the corrections, and the rows without one."""
    found: list[Any] = []
    unchanged: list[Json] = []
    dumped = {(each["type"], each["id"]): each for each in rows}
    for key, each in dumped.items():
        state = states.get(key, {"event": "delete", "timestamp": ""})
        is_live = state["event"] != "delete"
        if state["timestamp"] < each["timestamp"]:
            found.append(
                ["update" if is_live else "insert", *key, each["timestamp"], each["parents"]]
            )
        elif is_live and state["parents"] == each["parents"]:
            unchanged.append(each)
    found += [
        ["delete", *key, state["timestamp"], state["parents"]]
        for key, state in states.items()
        if state["event"] != "delete" and key not in dumped
    ]
    return sorted(found), unchanged


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Edges:
    """Dumps with a newest row in an hour that a clock shows twice, or at the last time."""
    folder = tmp_path_factory.mktemp("edges")
    given: dict[str, list[str]] = {}
    expected: dict[str, Any] = {}
    for city, day, hour in (("New York", "2021-11-07", 5), ("Berlin", "2021-10-31", 0)):
        # The clock shows this hour and the next twice. An object newer than the newest row must not
        # be deleted.
        for newest in (f"{day}T{hour:02}:30:00.000Z", f"{day}T{hour + 1:02}:30:00.000Z"):
            name = f"{city} {newest}"
            before, after = newest.replace(":30:", ":15:"), newest.replace(":30:", ":45:")
            store = folder / f"{len(given)}.db"
            append(
                store,
                [
                    operation("insert", "a", "before", before),
                    operation("insert", "a", "after", after),
                ],
            )
            dump = write_dump(folder / f"{len(given)}.jsonl", [row("a", "newest", newest)])
            given[name] = ["--store", str(store), "--max-deletes", "100%", str(dump)]
            expected[name] = [
                ["delete", "a", "before", before, []],
                ["insert", "a", "newest", newest, []],
            ]
    last = "9999-12-31T23:59:59.999Z"
    append(folder / "last.db", [operation("insert", "a", "same", last)])
    rows = [row("a", "same", last), row("a", "last", last)]
    argv = ["--store", str(folder / "last.db"), "--force"]
    given["last"] = [*argv, str(write_dump(folder / "last.jsonl", rows))]
    given["last in Parquet"] = [
        *argv,
        "--format",
        "parquet",
        str(write_parquet(folder / "last.parquet", rows)),
    ]
    expected["last"] = expected["last in Parquet"] = [["insert", "a", "last", last, []]]
    return given, expected


def _corrections(spark: SparkSession, argv: list[str], report: Path) -> Any:
    try:
        run(spark, command().parse([*argv, "--create", "--dry-run", "--report", str(report)], {}))
    except SyncError as error:
        return str(error)
    found = [
        json.loads(line) for part in report.glob("*.json") for line in part.read_text().splitlines()
    ]
    return sorted(
        [row["event"], row["type"], row["id"], row["timestamp"], row["parents"]] for row in found
    )


def check(
    spark: SparkSession, zone: str, forms: Iterable[str], history: History, edges: Edges, to: Path
) -> None:
    """Check the corrections that these forms of the dump and the edges of this zone need."""
    given = {form: history.forms[form] for form in forms} | _of_zone(zone, edges)
    found = {
        name: _corrections(spark, argv, to / f"{number}.jsonl")
        for number, (name, argv) in enumerate(given.items())
    }
    wanted = dict.fromkeys(given, history.corrections) | edges[1]
    assert {name: lines for name, lines in found.items() if lines != wanted[name]} == {}


def _of_zone(zone: str, edges: Edges) -> dict[str, list[str]]:
    given = edges[0]
    return {name: given[name] for name in given if name.startswith((_CITIES[zone], "last"))}


@pytest.fixture
def in_zone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Return a function that sets the zone of Java, of this process and of new Python workers."""
    zones = java_class("java.util.TimeZone")
    before, of_session = zones.getDefault(), spark.conf.get("spark.sql.session.timeZone")
    assert of_session is not None
    assert before.getID() == ZONE  # Java has started with it

    def set_zone(zone: str) -> None:
        zones.setDefault(zones.getTimeZone(zone))
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        monkeypatch.setitem(spark.sparkContext.environment, "TZ", zone)
        spark.conf.set("spark.sql.session.timeZone", zone)

    yield set_zone
    zones.setDefault(before)
    spark.conf.set("spark.sql.session.timeZone", of_session)
    monkeypatch.undo()
    time.tzset()


def test_no_form_of_a_dump_changes_its_objects_in_new_york(
    spark: SparkSession,
    history: History,
    edges: Edges,
    tmp_path: Path,
    in_zone: Callable[[str], None],
) -> None:
    in_zone(ZONE)
    forms = dict(history.forms)
    assert re.search(
        r"swapped/[12]\.csv has another header than the other files",
        refusal(spark, *forms.pop("CSV swapped")),
    )
    # Its unchanged rows have no parents: they get those of the store.
    del forms["drifted Parquet"]
    found = {name: objects_of(spark, *argv) for name, argv in forms.items()}
    assert [name for name in found if found[name] != history.objects] == []
    check(spark, ZONE, ["drifted Parquet"], history, edges, tmp_path)


def test_no_form_of_a_time_changes_its_objects_in_berlin(
    spark: SparkSession,
    history: History,
    edges: Edges,
    tmp_path: Path,
    in_zone: Callable[[str], None],
) -> None:
    in_zone("Europe/Berlin")
    found = {form: objects_of(spark, *history.forms[form]) for form in _FORMS_OF_TIME}
    assert [form for form in found if found[form] != history.objects] == []
    check(spark, "Europe/Berlin", ["Parquet without zone"], history, edges, tmp_path)
