"""The safety rules stop runs with missing or blanked objects or wrong times."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync import job
from oplog_sync.errors import SafetyRuleError
from oplog_sync.guard import TINY, Limit, TypeCounts, dated_after, refuse_excess
from tests.kits.spark.helpers import append, live, log, operation, row, sync, write_dump

T1, T2, FAR = "2020-01-01T00:00:00.000Z", "2020-01-02T00:00:00.000Z", "2999-01-01T00:00:00.000Z"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """300 videos, 30 users, 4 settings."""
    store = tmp_path / "oplog.db"
    sizes = {"video": 300, "user": 30, "setting": 4}
    append(
        store,
        [
            operation("insert", type_, str(n), T1, "a")
            for type_, size in sizes.items()
            for n in range(size)
        ],
    )
    return store


def test_a_type_whose_file_is_missing_is_not_deleted(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    # 34 of 334 objects are few, but they are all objects of their types.
    dump = write_dump(
        tmp_path / "dump.jsonl",
        [row("video", str(n), T1, "a") for n in range(299)] + [row("x", "1", T2)],
    )
    with pytest.raises(SafetyRuleError) as refused:
        sync(spark, "--store", store, dump)
    assert str(refused.value) == (
        "4 of 4 live objects of type setting (the dump has no row of it) would be deleted, "
        "and 30 of 30 of type user (the dump has no row of it), more than --max-deletes 20% "
        "allows, "
        "so nothing was emitted; if the dump is complete and right, give --max-deletes 35"
    )
    assert refused.value.exit_code == 3
    assert len(log(store)) == 334
    assert sync(spark, "--store", store, "--types", "video,x", dump).total("delete") == 1
    assert sync(spark, "--store", store, "--max-deletes", "34", dump).total("delete") == 34


def test_a_dump_that_blanks_every_object_is_refused(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    dump = write_dump(
        tmp_path / "dump.jsonl",
        [row("video", str(n), T2) for n in range(300)]
        + [row("user", str(n), T1, "a") for n in range(30)]
        + [row("setting", str(n), T2) for n in range(4)]
        + [row("new", str(n), T2) for n in range(500)],
    )
    with pytest.raises(SafetyRuleError) as refused:
        sync(spark, "--store", store, dump)
    assert str(refused.value) == (
        "304 of 334 live objects would be updated, and 300 of 300 of type video, more than "
        "--max-changes 60% allows, "
        "so nothing was emitted; if the dump is complete and right, give --max-changes 804"
    )
    assert refused.value.exit_code == 6
    assert len(log(store)) == 334
    assert sync(spark, "--store", store, "--max-changes", "804", dump).total("update") == 304


def test_the_first_fill_of_a_store_meets_no_limit(spark: SparkSession, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", str(n), T2) for n in range(1000)])
    assert sync(spark, "--store", tmp_path / "new.db", dump).total("insert") == 1000


def test_a_row_in_the_future_does_not_make_the_dump_newer(
    spark: SparkSession, store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Without that row, video/299 is as old as the newest row: it may be newer than the dump.
    rows = [row("video", str(n), T1, "a") for n in range(299)] + [
        row("user", "7", FAR, "a"),
        row("other", "1", T1),
    ]
    dump = write_dump(tmp_path / "dump.jsonl", rows)
    with pytest.raises(
        SafetyRuleError, match=r"the newest row of the dump is dated 2999-01-01T00:00:00\.000Z"
    ) as refused:
        sync(spark, "--store", store, "--max-deletes", "100%", dump)
    assert refused.value.exit_code == 7
    assert len(log(store)) == 334
    told = [line for line in capfd.readouterr().err.splitlines() if "future" in line]
    assert told == [f"oplog-sync: in the future: {dump}, line 300: user/7 is dated {FAR}"]
    assert sync(spark, "--store", store, "--types", "video,other", dump).total("delete") == 0
    counts = sync(spark, "--store", store, "--force", dump)
    assert [counts.total(name) for name in ("insert", "update", "delete")] == [0, 1, 0]
    assert len(live(store)) == 335


def test_a_row_at_the_limit_of_60_s_ahead_is_allowed_and_a_later_one_is_not(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "now_ms", lambda: 1_700_000_000_000)
    at_limit, past_limit = "2023-11-14T22:14:20.000Z", "2023-11-14T22:14:20.001Z"
    rows = [row("video", str(n), T1, "a") for n in range(299)] + [row("new", "1", at_limit)]
    dump = write_dump(tmp_path / "dump.jsonl", rows)
    counts = sync(spark, "--store", store, "--types", "new,video", dump)
    assert (counts.total("insert"), counts.total("delete")) == (1, 1)
    write_dump(dump, [row("new", "1", at_limit), row("new", "2", past_limit)])
    with pytest.raises(SafetyRuleError, match=f"is dated {past_limit}") as refused:
        sync(spark, "--store", store, "--types", "new", dump)
    assert refused.value.exit_code == 7


def test_only_rows_dated_after_the_limit_are_named() -> None:
    limit, past_limit = "2023-11-14T22:14:20.000Z", "2023-11-14T22:14:20.001Z"
    fault = dated_after(limit, {"video"})
    assert fault(json.dumps(row("video", "1", limit)).encode()) is None
    late = json.dumps(row("video", "1", past_limit)).encode()
    assert fault(late) == f"video/1 is dated {past_limit}"
    assert dated_after(limit, ())(late) == f"video/1 is dated {past_limit}"
    assert dated_after(limit, {"user"})(late) is None
    assert fault(b"invalid") is None


def found(**types: tuple[int, bool, dict[str, int]]) -> dict[str, TypeCounts]:
    return {
        name: TypeCounts(live, has_rows, Counter(given))
        for name, (live, has_rows, given) in types.items()
    }


_DELETES, _CHANGES = Limit(20, is_percentage=True), Limit(60, is_percentage=True)
_SMALL = {f"t{n}": (TINY, True, {"update": TINY}) for n in range(20)}


@pytest.mark.parametrize(
    ("types", "limits", "refused"),
    [
        ({"a": (1000, True, {}), "b": (4, True, {"delete": 1})}, (_DELETES, _CHANGES), None),
        (
            {"a": (1000, True, {}), "b": (4, False, {"delete": 1})},
            (_DELETES, _CHANGES),
            "1 of 4 live objects of type b",
        ),
        ({"a": (1000, True, {}), "b": (4, False, {})}, (_DELETES, _CHANGES), None),
        ({"a": (1000, True, {}), "b": (12, True, {"delete": TINY})}, (_DELETES, _CHANGES), None),
        (
            {"a": (1000, True, {}), "b": (12, True, {"delete": 11})},
            (_DELETES, _CHANGES),
            "11 of 12 live objects of type b",
        ),
        (
            {"a": (10, True, {"delete": 3})},
            (_DELETES, _CHANGES),
            "3 of 10 live objects would be deleted, more",
        ),
        ({"a": (10, True, {"delete": 2})}, (_DELETES, _CHANGES), None),
        ({"a": (100, True, {"delete": 20, "update": 60})}, (_DELETES, _CHANGES), None),
        ({"a": (0, True, {"insert": 10_000})}, (_DELETES, _CHANGES), None),
        (_SMALL, (_DELETES, _CHANGES), "200 of 200 live objects would be updated, more"),
        ({"a": (9, True, {"update": 9})}, (_DELETES, _CHANGES), None),
        ({"a": (50, False, {"delete": 50})}, (Limit(50, is_percentage=False), _CHANGES), None),
        (
            {"a": (50, False, {"delete": 50})},
            (Limit(49, is_percentage=False), _CHANGES),
            "50 of 50 live objects would be",
        ),
        ({"a": (50, False, {"delete": 50})}, (Limit(100, is_percentage=True), _CHANGES), None),
        (
            {"a": (0, True, {"insert": 2})},
            (_DELETES, Limit(1, is_percentage=False)),
            "2 objects would be inserted or",
        ),
        (
            {"a": (9, True, {"insert": 1, "update": 1})},
            (_DELETES, Limit(1, is_percentage=False)),
            "2 objects would be inserted or updated, more than --max-changes 1 allows",
        ),
        (
            {"a": (90, True, {"delete": 0, "update": 90})},
            (Limit(0, is_percentage=True), Limit(100, is_percentage=True)),
            None,
        ),
    ],
)
def test_the_limits_by_type_and_total(
    types: dict[str, tuple[int, bool, dict[str, int]]],
    limits: tuple[Limit, Limit],
    refused: str | None,
) -> None:
    if refused is None:
        refuse_excess(found(**types), *limits)
    else:
        with pytest.raises(SafetyRuleError, match=f"^{refused}"):
            refuse_excess(found(**types), *limits)


def test_one_refusal_names_all_flags_that_the_run_needs() -> None:
    types = {f"t{n}": (20, True, {"delete": 15}) for n in range(8)} | {
        "video": (100, True, {"update": 90, "insert": 7})
    }
    with pytest.raises(SafetyRuleError) as refused:
        refuse_excess(found(**types), _DELETES, _CHANGES)
    assert str(refused.value) == (
        "120 of 260 live objects would be deleted, and 15 of 20 of type t0, 15 of 20 of type t1, "
        "15 of 20 of type t2, "
        "15 of 20 of type t3, 15 of 20 of type t4, 3 more types, more than --max-deletes 20% "
        "allows; "
        "90 of 100 live objects of type video would be updated, more than --max-changes 60% "
        "allows, "
        "so nothing was emitted; if the dump is complete and right, give --max-deletes 120 and "
        "--max-changes 97"
    )
    assert refused.value.exit_code == 3


def test_a_dump_older_than_forgotten_deletions_inserts_nothing(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    purged = datetime.fromisoformat(T2)
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE logs SET purged = ?", (int(purged.timestamp() * 1000),))
    flags = ("--store", store, "--types", "setting")
    settings = [row("setting", str(n), T1, "a") for n in range(4)]
    assert sync(spark, *flags, write_dump(tmp_path / "old.jsonl", settings)).corrections() == 0
    old = write_dump(tmp_path / "old.jsonl", [*settings, row("setting", "deleted", T1)])
    for more in ((), ("--force", "--max-changes", "100%"), ("--dry-run",)):
        with pytest.raises(SafetyRuleError) as refused:
            sync(spark, *flags, *more, old)
        assert refused.value.exit_code == 8
        assert str(refused.value) == (
            f"the newest row of the dump is dated {T1}, and the store has forgotten deletions "
            f"until {T2}, so 1 insert might bring deleted objects back and nothing was emitted; "
            "make a new dump, or give --allow-old-dump"
        )
    assert len(log(store)) == 334
    assert sync(spark, *flags, "--allow-old-dump", old).total("insert") == 1
    new = write_dump(tmp_path / "new.jsonl", [*settings, row("setting", "new", T2)])
    assert sync(spark, *flags, "--dry-run", new).total("insert") == 1
    # A row of the future does not make an old dump a new one.
    future = [row("setting", "0", "2999-01-01T00:00:00.000Z"), row("setting", "gone", T1)]
    forced = ("--store", store, "--types", "setting", "--force")
    with pytest.raises(SafetyRuleError, match="the newest row of the dump is dated in the") as late:
        sync(spark, *forced, write_dump(tmp_path / "future.jsonl", [*settings[1:], *future]))
    assert late.value.exit_code == 8
