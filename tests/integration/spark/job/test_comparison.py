"""The survey of narrow rows leads to the same result as the comparison of all whole rows."""

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from oplog_sync.backend import make_backend
from oplog_sync.comparison import Comparison, states, steps
from oplog_sync.comparison.diff import ABSENT, CORRECTIONS, compare
from oplog_sync.dump.reading import raw_rows
from oplog_sync.dump.rows import normalised
from oplog_sync.errors import SyncError
from oplog_sync.failure import translating
from oplog_sync.settings import command
from tests.kits.models.properties import chance
from tests.kits.spark.helpers import Json, StorePlace, append, operation, row, write_dump

_BASE = datetime(2021, 3, 1, tzinfo=UTC)
_PARENTS = ["a", "b", "a,b", '"', "\\", "é", "\u2028", "],", "user/1"]
_OBJECTS = 1500
T3 = "2022-01-01T00:00:00.000Z"


def _time(random_: random.Random) -> str:
    """Return one of few times, in one of many notations."""
    moment = _BASE + timedelta(microseconds=random_.choice([0, 1, 1000, 1999, 2000, 3000]))
    zone = timezone(timedelta(minutes=random_.choice([0, 0, 330, -570])))
    text = moment.astimezone(zone).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z") if random_.random() < 0.7 else text


def _parents(random_: random.Random) -> list[str]:
    return random_.choices(_PARENTS, k=random_.choice([0, 1, 1, 1, 2, 3]))


def _line(given: Json, random_: random.Random) -> str:
    members = list(given.items())
    if random_.random() < 0.3:
        random_.shuffle(members)
    spaces = random_.choice([(",", ":"), (", ", ": ")])
    return json.dumps(dict(members), separators=spaces, ensure_ascii=random_.random() < 0.5)


def _case(number: int, random_: random.Random) -> tuple[list[Json], list[str]]:
    """Return the history of an object and its rows in the dump."""
    type_, id_ = random_.choice(["video", "Video", "tag"]), f"{number}"
    operations = [
        operation(random_.choice(["insert", "insert", "delete"]), type_, id_, _time(random_))
        | {"parents": _parents(random_)}
        for _ in range(random_.choice([0, 1, 1, 1, 2]))
    ]
    rows = []
    for _ in range(random_.choice([0, 1, 1, 1, 1, 2, 3])):
        given = row(type_, id_, _time(random_)) | {"parents": _parents(random_)}
        if operations and random_.random() < 0.5:
            last = operations[-1]
            given["timestamp"] = last["timestamp"]
            given["parents"] = random_.sample(last["parents"], len(last["parents"]))
        if random_.random() < 0.2:
            given["parents"] = None
        elif random_.random() < 0.2:
            del given["parents"]
        rows.append(_line(given, random_))
    if random_.random() < 0.02:
        rows.append(random_.choice(["{}", "x", '{"type":"video","id":"","timestamp":"x"}']))
    return operations, rows


def _result(compared: DataFrame) -> tuple[set[Any], Counter[Any], dict[Any, int]]:
    """Return the objects with a possible correction, the counts, and the newest rows by group."""
    objects, counts, newest = set(), Counter[Any](), dict[Any, int]()
    for each in compared.collect():
        group = each.type, each.action
        counts[group] += each["count"]
        counts[group, "live"] += each.live
        if each.in_dump is not None:
            newest[each.type] = max(newest.get(each.type, 0), each.in_dump)
        if each.action in (*CORRECTIONS, ABSENT):
            objects.add((*group, each.key, each.offset, each.data, each.timestamp))
        else:
            assert each.key is None
    return objects, +counts, newest


def _agree(spark: SparkSession, store: str, dump: Path, *flags: str) -> Counter[Any]:
    settings = command().parse(["--store", "unused", *flags, str(dump)], {})
    raw, backend = raw_rows(spark, settings, settings.arguments), make_backend(store)
    known = states.read_states(spark, backend, settings.types, states.WHOLE)
    whole = _result(compare(known, normalised(raw, settings.types)))
    with Comparison(spark, raw, backend, settings.types) as compared:
        look = compared.look()
        found = _result(compared.rows())
    assert found == whole
    assert look.invalid == sum(whole[1][each] for each in whole[1] if each[1] == "invalid")
    assert look.newest == max(whole[2].values())
    return whole[1]


def test_survey_and_whole_comparison_agree_on_random_histories_and_dumps(
    default_spark: SparkSession, tmp_path: Path
) -> None:
    random_ = chance(7)
    store, operations, lines = tmp_path / "oplog.db", [], list[str]()
    for number in range(_OBJECTS):
        history, rows = _case(number, random_)
        operations += history
        lines += rows
    random_.shuffle(lines)
    append(store, operations)
    dump = tmp_path / "dump.jsonl"
    dump.write_text("\n".join(lines) + "\n")
    counts = _agree(default_spark, str(store), dump)
    actions = {group[1] for group in counts}
    assert {*CORRECTIONS, ABSENT, "untouched", "duplicate", "invalid"} - {"delete"} <= actions
    _agree(default_spark, str(store), dump, "--types", "video")


def test_many_open_objects_are_compared_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: StorePlace
) -> None:
    append(place.store, [operation("insert", "video", str(n)) for n in range(10)])
    later = "2020-01-02T00:00:00.000Z"
    dump = write_dump(
        tmp_path / "dump.jsonl",
        [row("video", str(n), later if n % 2 else "2020-01-01T00:00:00Z") for n in range(2, 12)],
    )
    few = _agree(spark, str(place.store), dump)
    assert few["video", "update"] == 4
    monkeypatch.setattr(steps, "FEW", 0)
    assert _agree(spark, str(place.store), dump) == few


def test_equal_sets_of_parents_leave_nothing_open(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    append(
        store,
        [operation("insert", "video", str(n), "2020-01-01T00:00:00Z", "a", "b") for n in range(9)],
    )
    dump = write_dump(
        tmp_path / "dump.jsonl",
        [row("video", str(n), "2020-01-01T00:00:00Z", "b", "a", "a") for n in range(9)],
    )
    settings = command().parse([str(dump)], {})
    raw = raw_rows(spark, settings, settings.arguments)
    with Comparison(spark, raw, make_backend(str(store)), frozenset()) as compared:
        assert compared.look().open == 0
        assert str(compared.progress) == "read 9 states and 9 rows of the dump"


@pytest.mark.parametrize("change", ["removed", "later"])
def test_a_dump_that_changes_between_its_two_reads_stops_the_run(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    store, dump = tmp_path / "oplog.db", tmp_path / "dump.jsonl"
    append(store, [operation("insert", "video", str(n)) for n in range(4)])
    later = "2021-01-01T00:00:00.000Z"
    rows = [row("video", str(n), later) for n in range(4)]
    write_dump(dump, rows)
    raw = raw_rows(spark, command().parse([str(dump)], {}), [str(dump)])
    with Comparison(spark, raw, make_backend(str(store)), frozenset()) as comparison:
        assert comparison.look().open == 4
        changed = rows[1:] if change == "removed" else [*rows[1:], row("video", "0", T3)]
        write_dump(dump, changed)
        said = r"changed or replaced while it was read|was removed"
        with pytest.raises(SyncError, match=said), translating():
            comparison.rows()
