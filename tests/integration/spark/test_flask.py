"""A store with half of a real project's history, and the dump from the end of the history."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync.errors import EXIT_TOO_MANY_DELETES, SafetyRuleError
from tests.kits.agents.agent import fold
from tests.kits.spark.helpers import (
    StorePlace,
    append,
    dump_state,
    live,
    log,
    read_lines,
    sync,
)


# A log of the kind "capped" gets corrections in test_mongo.py.
@pytest.mark.parametrize("place", ["sqlite", "mongo-plain"], indirect=True)
def test_the_store_at_half_the_history_needs_exactly_these_corrections(
    spark: SparkSession, shared_data: Path, tmp_path: Path, place: StorePlace
) -> None:
    expected = json.loads((shared_data / "flask/expected.json").read_text())
    history = read_lines(shared_data / "flask/ops.jsonl.gz")
    dump = shared_data / "flask/dump.jsonl.gz"
    half = expected["half"]
    append(place.store, history[: half["ops"]])
    assert len(live(place.store)) == half["live"]

    with pytest.raises(
        SafetyRuleError, match=r"132 of 237 live objects .*--max-deletes 132"
    ) as refused:
        sync(spark, *place.argv, dump)
    assert refused.value.exit_code == EXIT_TOO_MANY_DELETES
    assert len(log(place.store)) == half["ops"]

    with (
        place.agent(tmp_path) as agent,
        agent.follow("0") as consumer,
        agent.follow() as late_consumer,
    ):
        known = fold(consumer.until("live"))
        counts = sync(spark, *place.argv, "--max-deletes", "132", dump)
        emitted = half["insert"] + half["update"] + half["delete"]
        found = {
            name: counts.total(name)
            for name in ("insert", "update", "delete", "skipped", "invalid", "duplicate")
        }
        assert found == {
            "insert": half["insert"], "update": half["update"], "delete": half["delete"],
            "skipped": 0, "invalid": 0, "duplicate": 0,
        }  # fmt: skip
        wanted = dump_state(read_lines(dump))
        assert fold(consumer.take(emitted), known) == wanted
        assert len(late_consumer.take(emitted)) == emitted

    counts = sync(spark, *place.argv, dump)
    assert [counts.total(name) for name in ("insert", "update", "delete")] == [0, 0, 0]
    assert live(place.store) == wanted
    assert len(log(place.store)) == half["ops"] + emitted


def test_the_store_at_the_end_of_the_history_needs_no_correction(
    default_spark: SparkSession, shared_data: Path, tmp_path: Path
) -> None:
    expected = json.loads((shared_data / "flask/expected.json").read_text())
    history = read_lines(shared_data / "flask/ops.jsonl.gz")
    store = tmp_path / "oplog.db"
    append(store, history)
    counts = sync(default_spark, "--store", store, shared_data / "flask/dump.jsonl.gz")
    assert [counts.total(name) for name in ("insert", "update", "delete")] == [0, 0, 0]
    assert counts.total("untouched") == expected["ever"]
    assert len(log(store)) == len(history)
