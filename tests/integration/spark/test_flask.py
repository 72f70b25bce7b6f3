"""A store with half of a real project's history, and the dump from the end of the history."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync.errors import EXIT_TOO_MANY_DELETES, SafetyRuleError
from tests.kits.agents.agent import fold
from tests.kits.spark.helpers import (
    Json,
    StorePlace,
    append,
    dump_state,
    live,
    log,
    read_lines,
    sync,
)


def test_the_store_at_half_the_history_needs_exactly_these_corrections(
    spark: SparkSession, shared_data: Path, tmp_path: Path, place: StorePlace
) -> None:
    expected = json.loads((shared_data / "flask/expected.json").read_text())
    history = read_lines(shared_data / "flask/ops.jsonl.gz")
    dump = shared_data / "flask/dump.jsonl.gz"
    half = expected["half"]
    before = as_far_as_it_matters(history[: half["ops"]], place)
    append(place.store, before)
    assert len(live(place.store)) == half["live"]

    with pytest.raises(
        SafetyRuleError, match=r"132 of 237 live objects .*--max-deletes 132"
    ) as refused:
        sync(spark, *place.argv, dump)
    assert refused.value.exit_code == EXIT_TOO_MANY_DELETES
    assert len(log(place.store)) == len(before)

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
    assert len(log(place.store)) == len(before) + emitted


def test_the_store_at_the_end_of_the_history_needs_no_correction(
    spark: SparkSession, shared_data: Path, place: StorePlace
) -> None:
    expected = json.loads((shared_data / "flask/expected.json").read_text())
    history = as_far_as_it_matters(read_lines(shared_data / "flask/ops.jsonl.gz"), place)
    append(place.store, history)
    counts = sync(spark, *place.argv, shared_data / "flask/dump.jsonl.gz")
    assert [counts.total(name) for name in ("insert", "update", "delete")] == [0, 0, 0]
    assert counts.total("untouched") == expected["ever"]
    assert len(log(place.store)) == len(history)


def as_far_as_it_matters(history: list[Json], place: StorePlace) -> list[Json]:
    """Return the history; for the slow server only the last operation of each object.

    The states are the same.
    """
    if place.kind != "capped":
        return history
    return list({(operation["type"], operation["id"]): operation for operation in history}.values())
