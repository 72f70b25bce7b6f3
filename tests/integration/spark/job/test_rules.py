"""The rules against an oracle in plain Python that shares no code with them."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from oplogd.model.operation import decode_data
from tests.kits.models.properties import chance
from tests.kits.spark.helpers import Json, append, live, log, operation, row, sync, write_dump

T1, T2, T3, T4 = (f"2020-01-0{day}T00:00:00.000Z" for day in (1, 2, 3, 4))

_BASE = datetime(2021, 3, 1, tzinfo=UTC)
_ids = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=4
)
_parents = st.lists(_ids, max_size=2)
_types = st.sampled_from(["video", "Video", "VIDEO", "tag", "É"])
_offsets = st.sampled_from([0, 330, -570, 60])


@st.composite
def _timestamps(draw: st.DrawFn) -> str:
    """Few times, at least a fraction of a millisecond apart, in many notations."""
    moment = _BASE + timedelta(
        microseconds=draw(st.sampled_from([0, 1, 999, 1000, 1999, 2000, 3000, 3001]))
    )
    offset = draw(_offsets)
    if offset == 0 and draw(st.booleans()):
        return moment.isoformat(timespec="microseconds")[:26] + "Z"
    return moment.astimezone(timezone(timedelta(minutes=offset))).isoformat(timespec="microseconds")


class RulesCase(NamedTuple):
    operations: list[tuple[str, str, str, str, list[str]]]
    rows: list[tuple[str, str, str, list[str] | None]]


_cases = st.builds(
    RulesCase,
    st.lists(
        st.tuples(
            st.sampled_from(["insert", "update", "delete"]), _types, _ids, _timestamps(), _parents
        ),
        max_size=4,
    ),
    st.lists(st.tuples(_types, _ids, _timestamps(), st.none() | _parents), max_size=4),
)
# The same few objects on both sides, so that there are objects to compare.
_colliding = st.builds(
    RulesCase,
    st.lists(
        st.tuples(
            st.sampled_from(["insert", "update", "delete"]),
            _types,
            st.sampled_from("ab"),
            _timestamps(),
            _parents,
        ),
        max_size=4,
    ),
    st.lists(
        st.tuples(_types, st.sampled_from("ab"), _timestamps(), st.none() | _parents), max_size=3
    ),
)


class KnownState(NamedTuple):
    moment: datetime
    parents: list[str]
    is_live: bool


def _milliseconds(text: str) -> datetime:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


# A correction: event, time, parents. None: the object needs no correction.
Expected = tuple[str, datetime, list[str]] | None


def _oracle(
    operations: list[Json], rows: list[Json]
) -> tuple[dict[tuple[str, str], list[Expected]], int]:
    """Return the allowed corrections of each object, and the number of superseded dump rows."""
    states: dict[tuple[str, str], KnownState] = {}
    for given_ in operations:
        key = given_["type"].lower(), given_["id"]
        states[key] = KnownState(
            _milliseconds(given_["timestamp"]), given_["parents"], given_["event"] != "delete"
        )
    wanted: dict[tuple[str, str], list[tuple[datetime, list[str] | None]]] = {}
    for given_ in rows:
        key = given_["type"].lower(), given_["id"]
        wanted.setdefault(key, []).append(
            (_milliseconds(given_["timestamp"]), given_.get("parents"))
        )
    newest = max((moment for found in wanted.values() for moment, _ in found), default=None)
    allowed: dict[tuple[str, str], list[Expected]] = {}
    for key in states.keys() | wanted.keys():
        state, found = states.get(key), wanted.get(key)
        if found is None:
            is_gone = (
                state is not None and state.is_live and newest is not None and state.moment < newest
            )
            allowed[key] = [("delete", state.moment, state.parents) if state and is_gone else None]
            continue
        moment = max(moment for moment, _ in found)
        latest = [parents for other, parents in found if other == moment]
        named = [parents for parents in latest if parents is not None]
        allowed[key] = [
            _correction(state, moment, parents) for parents in named or latest
        ]  # any of them may win
    return allowed, sum(len(found) - 1 for found in wanted.values())


def _correction(state: KnownState | None, moment: datetime, parents: list[str] | None) -> Expected:
    if state is None:
        return "insert", moment, parents or []
    kept = state.parents if parents is None else parents
    if state.moment < moment:
        return "update" if state.is_live else "insert", moment, kept
    if state.is_live and state.moment == moment and set(kept) != set(state.parents):
        return "update", moment, kept
    return None


def _collect(count: int, number: int) -> list[RulesCase]:
    """Return random cases, the same for each number outside `make soak`."""
    cases: list[RulesCase] = []

    @seed(chance(number).getrandbits(64))
    @settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(_cases | _colliding)
    def collect(case: RulesCase) -> None:
        cases.append(case)

    collect()
    return cases


@pytest.mark.parametrize(
    ("number", "newest"), [(1, "2021-03-01T00:00:00.002Z"), (2, "2021-03-01T00:00:00.004Z")]
)
def test_random_stores_and_dumps_agree_with_the_oracle(
    default_spark: SparkSession, tmp_path: Path, number: int, newest: str
) -> None:
    spark = default_spark
    # Each case has ids of its own, so that one run of the job compares them all.
    operations: list[Json] = []
    rows: list[Json] = [row("newest", "row", newest)]
    for place, case in enumerate(_collect(400, number)):
        operations += [
            operation(e, t, f"{place}/{i}", at, *parents)
            for e, t, i, at, parents in case.operations
        ]
        rows += [
            row(t, f"{place}/{i}", at) | {"parents": parents} for t, i, at, parents in case.rows
        ]
    store = tmp_path / "oplog.db"
    append(store, operations)
    allowed, duplicates = _oracle(operations, rows)
    counts = sync(
        spark, "--store", store, "--max-deletes", "100%", write_dump(tmp_path / "dump.jsonl", rows)
    )

    found: dict[Any, Any] = {}
    for entry in log(store, after=len(operations)):
        data = decode_data(entry.data)
        assert (data.type, data.id) not in found
        found[data.type, data.id] = (entry.event, _milliseconds(data.timestamp), data.parents)
    for key, outcomes in allowed.items():
        assert found.get(key) in outcomes, key
    assert found.keys() <= allowed.keys()
    by_type = Counter((type_, event) for (type_, _), (event, _, _) in found.items())
    assert {
        (t, c): n
        for t, columns in counts.rows.items()
        for c, n in columns.items()
        if n and c in ("insert", "update", "delete")
    } == by_type
    assert counts.total("duplicate") == duplicates
    assert counts.total("skipped") == counts.total("invalid") == 0
    again = sync(spark, "--store", store, tmp_path / "dump.jsonl")
    assert [again.total(name) for name in ("insert", "update", "delete")] == [0, 0, 0]


def test_each_rule_by_name(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    append(
        store,
        [
            operation("insert", "a", "same", T2),
            operation("insert", "a", "dump-newer", T1, "old"),
            operation("insert", "a", "store-newer", T3, "kept"),
            operation("insert", "a", "other-parents", T2, "old", "both"),
            operation("insert", "a", "same-parents-in-another-order", T2, "x", "y"),
            operation("insert", "a", "parents-not-named", T1, "kept", "\u2028"),
            operation("insert", "a", "parents-not-named-same-time", T2, "kept"),
            operation("insert", "a", "gone", T1, "parent"),
            operation("insert", "a", "created-after-the-dump", T3),
            operation("delete", "a", "deleted-before", T1),
            operation("delete", "a", "deleted-at-the-same-time", T2),
            operation("delete", "a", "deleted-and-gone", T1),
            operation("insert", "b", "other-type", T1),
        ],
    )
    dump = write_dump(
        tmp_path / "dump.jsonl",
        [
            row("A", "same", "2020-01-02T05:30:00.000999+05:30"),
            row("a", "dump-newer", T2, "new"),
            row("a", "dump-newer", T1, "older row"),
            row("a", "store-newer", T2),
            row("a", "other-parents", T2, "both", "new"),
            row("a", "same-parents-in-another-order", T2, "y", "x"),
            {"type": "a", "id": "parents-not-named", "timestamp": T2},
            row("a", "parents-not-named-same-time", T2) | {"parents": None},
            row("a", "deleted-before", T2),
            row("a", "deleted-at-the-same-time", T2),
            row("a", "dump-only", T3, "x"),
            row("b", "not-compared", T4),
        ],
    )
    counts = sync(spark, "--store", store, "--types", "A", dump)
    assert counts.rows == {
        "a": {
            "insert": 2,
            "update": 3,
            "delete": 1,
            "untouched": 7,
            "skipped": 0,
            "invalid": 0,
            "duplicate": 1,
        }
    }
    entries = [(entry.event, json.loads(entry.data)) for entry in log(store, after=13)]
    assert sorted(entries, key=str) == sorted(
        [
            ("update", row("a", "dump-newer", T2, "new")),
            ("update", row("a", "other-parents", T2, "both", "new")),
            ("update", row("a", "parents-not-named", T2, "kept", "\u2028")),
            ("delete", row("a", "gone", T1, "parent")),
            ("insert", row("a", "deleted-before", T2)),
            ("insert", row("a", "dump-only", T3, "x")),
        ],
        key=str,
    )
    assert "b/other-type" in live(store)


def test_the_table_has_a_line_for_each_type_and_their_sum(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "new" / "oplog.db"
    store.parent.mkdir()
    dump = write_dump(
        tmp_path / "dump.jsonl", [row("video", "1"), row("video", "1"), row("user", "1")]
    )
    counts = sync(spark, "--store", store, "--capped-collection-size", "1MB", dump)
    assert counts.table().splitlines() == [
        "type   insert  update  delete  untouched  skipped  invalid  duplicate",
        "user        1       0       0          0        0        0          0",
        "video       1       0       0          0        0        0          1",
        "total       2       0       0          0        0        0          1",
    ]
    assert len(live(store)) == 2
