"""The same dump in every form and time zone gives the same corrections, or a clear error."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.sync.dumps import write_forms, write_parquet
from tests.sync.helpers import Json, append, operation, read_lines, row, write_dump

# Hours that no local clock shows, hours that it shows twice, and the first year.
_EDGES = (
    "2021-03-14T02:30:00.000Z",
    "2021-03-28T02:30:00.000Z",
    "2021-11-07T01:30:00.000Z",
    "2021-10-31T02:30:00.001Z",
    "0001-01-01T00:00:00.000Z",
)

# One on each side of UTC, each with hours that its clock skips and shows twice. The other tests run
# in the machine's zone.
_CITIES = {"America/New_York": "New York", "Europe/Berlin": "Berlin"}


@pytest.fixture(scope="module")
def history(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, list[str]], list[Any]]:
    """Return arguments for each form of a real project's dump, and the expected corrections.

    The store has half of the project's history; the dump is from its end.
    """
    folder = tmp_path_factory.mktemp("history")
    rows = read_lines(shared_data / "flask/dump.jsonl.gz")
    half = json.loads((shared_data / "flask/expected.json").read_text())["half"]
    operations = read_lines(shared_data / "flask/ops.jsonl.gz")[: half["ops"]]
    operations += [operation("insert", "edge", str(n), time, "a") for n, time in enumerate(_EDGES)]
    rows += [row("edge", str(n), time, "a") for n, time in enumerate(_EDGES)]
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
    return {
        name: [*store, *argv] for name, argv in write_forms(folder, rows, unchanged).items()
    }, expected


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
def edges(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], dict[str, Any]]:
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


@pytest.mark.parametrize("zone", _CITIES)
def test_no_form_of_a_dump_and_no_time_zone_changes_the_corrections(
    zone: str,
    history: tuple[dict[str, list[str]], list[Any]],
    edges: tuple[dict[str, list[str]], dict[str, Any]],
    tmp_path: Path,
) -> None:
    forms, expected = history
    at_edges = {
        name: found for name, found in edges[1].items() if name.startswith((_CITIES[zone], "last"))
    }
    given = {name: edges[0][name] for name in at_edges}
    environ = {**os.environ, "TZ": zone, "PYTHONPATH": str(ROOT), "SPARK_DRIVER_MEMORY": "1g"}
    child = subprocess.run(
        [sys.executable, "-m", "tests.sync.zones"], input=json.dumps(forms | given), cwd=tmp_path,
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    told = json.loads(child.stdout)
    assert told["zone"] == zone
    found = told["found"]
    assert {name: found[name] for name in at_edges} == at_edges
    assert re.search(
        r"swapped/[12]\.csv has another header than the other files", found.pop("CSV swapped")
    )
    wrong = {name: found[name] for name in forms if name in found and found[name] != expected}
    assert wrong == {}
