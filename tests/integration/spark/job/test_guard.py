"""A correction never overwrites an operation that an agent wrote after the comparison."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from oplog_sync import job
from oplog_sync.apply import apply, count
from oplog_sync.backend import Wanted, make_backend
from oplog_sync.emit import emit
from oplogd.model.operation import Operation, encode_data
from oplogd.store import Correction, CorrectionResult
from tests.kits.agents.agent import DEADLINE, fold
from tests.kits.spark.helpers import (
    StoreLocation,
    StorePlace,
    append,
    correct,
    dump_state,
    live,
    log,
    looking,
    operation,
    row,
    sync,
    write_dump,
)

_LARGE = pytest.mark.parametrize("place", ["sqlite", "mongo-plain"], indirect=True)

OLD, DUMPED, NEW = (
    "2020-01-01T00:00:00.000Z",
    "2021-01-01T00:00:00.000Z",
    "2022-01-01T00:00:00.000Z",
)


def _operation(event: str, id_: str, timestamp: str, *parents: str) -> Operation:
    return Operation(event, f"video/{id_}", encode_data(timestamp, list(parents), "video", id_))


def test_a_correction_needs_the_object_as_it_was_seen(place: StorePlace) -> None:
    store = place.store
    append(
        store, [operation("insert", "video", "a", OLD), operation("delete", "video", "gone", OLD)]
    )
    corrections = [
        Correction(_operation("update", "a", DUMPED), 1),
        Correction(_operation("insert", "gone", DUMPED), 2),
        Correction(_operation("insert", "b", DUMPED), 0),
        Correction(_operation("insert", "c", DUMPED), 3),  # never seen, but expected
        Correction(_operation("update", "a", NEW), 1),  # the second for one object
        Correction(_operation("insert", "any", DUMPED), None),
    ]
    applied, skipped, present = (
        CorrectionResult.APPLIED,
        CorrectionResult.SKIPPED,
        CorrectionResult.PRESENT,
    )
    assert correct(store, corrections) == [applied, applied, applied, skipped, skipped, applied]
    assert [entry.event for entry in log(store, after=2)] == [
        "update",
        "insert",
        "insert",
        "insert",
    ]
    assert correct(store, corrections[:3]) == [present, present, present]
    assert len(log(store)) == 6
    append(store, [operation("update", "video", "a", NEW)])
    assert correct(store, corrections[:1]) == [skipped]
    assert correct(store, []) == []


@contextmanager
def _racing(write: Callable[[int], None]) -> Iterator[threading.Event]:
    """Call ``write`` with 0, 1, 2... in a thread until the block ends.

    The event is set after the first call.
    """
    begun, done = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def race() -> None:
        number = 0
        try:
            while not done.is_set():
                write(number)
                number += 1
                begun.set()
        except BaseException as error:
            failed.append(error)
            begun.set()

    thread = threading.Thread(target=race)
    thread.start()
    try:
        yield begun
    finally:
        done.set()
        thread.join(DEADLINE)
    assert not failed, failed


@_LARGE
def test_thousands_of_corrections_race_with_an_agent_and_each_follows_its_own_state(
    tmp_path: Path, place: StorePlace
) -> None:
    # A correction has the offset of its state in its parents. In the log, no operation on the
    # object may be between the two.
    objects, rounds = (60, 50) if place.kind is None else (100, 12)
    store = place.store
    verdicts = dict.fromkeys(CorrectionResult, 0)
    chance = random.Random(4)
    append(store, [operation("insert", "video", str(n), OLD) for n in range(objects)])
    with place.agent(tmp_path) as agent:

        def write(_: int) -> None:
            ids = chance.sample(range(objects), 10)
            assert agent.post([operation("update", "video", str(n), NEW) for n in ids]) == 200

        backend = make_backend(str(store))
        with _racing(write) as begun:
            assert begun.wait(DEADLINE)
            for _ in range(rounds):
                seen = [
                    state
                    for part in backend.state_ranges(1000)
                    for rows in backend.states(part, Wanted())
                    for state in rows
                ]
                made = [
                    Correction(
                        _operation(
                            "update",
                            state.key.partition("/")[2],
                            DUMPED,
                            "made-for",
                            str(state.offset),
                        ),
                        state.offset,
                    )
                    for state in seen
                ]
                for (_, _, verdict), many in count(apply(str(store), made)).items():
                    verdicts[verdict] += many
    assert sum(verdicts.values()) == objects * rounds
    assert verdicts[CorrectionResult.APPLIED] > 0
    assert verdicts[CorrectionResult.SKIPPED] > 0
    last: dict[str, int] = {}
    found = 0
    for entry in log(store):
        data = json.loads(entry.data)
        if data["parents"][:1] == ["made-for"]:
            found += 1
            assert last[data["id"]] == int(data["parents"][1]), entry
        last[data["id"]] = entry.offset
    assert found == verdicts[CorrectionResult.APPLIED]


@_LARGE
def test_writes_racing_with_the_job_survive_every_time(
    spark: SparkSession, tmp_path: Path, place: StorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several batches of corrections.
    count, batch = 4_000 if place.kind is None else 1_100, 100
    store = place.store
    backend = make_backend(str(store))
    append(store, [operation("insert", "video", str(n), OLD) for n in range(count)])
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", str(n), DUMPED) for n in range(count)])
    order = list(range(count))
    random.Random(7).shuffle(order)

    emitted = threading.Event()
    heads: list[int] = []
    with place.agent(tmp_path) as agent, looking(store) as has:

        def write(number: int) -> None:
            start = number * batch % count
            ids = order[start : start + batch]
            assert (
                agent.post([operation("update", "video", str(n), NEW, str(number)) for n in ids])
                == 200
            )

        def write_after_the_job(number: int) -> None:
            # The stand-in has no index for ranges: if only this writer filled the log, the job's
            # reads could not keep up.
            while number and place.kind and not emitted.is_set() and not has(heads[-1] + 1):
                time.sleep(0.001)
            write(number)
            heads.append(backend.locate(0).head.offset)

        def emit_in_a_race(*args: Any) -> Any:
            with _racing(write_after_the_job) as begun:
                try:
                    assert begun.wait(DEADLINE)
                    return emit(*args)
                finally:
                    emitted.set()

        monkeypatch.setattr(job, "emit", emit_in_a_race)
        counts = sync(spark, *place.argv, "--max-changes", "100%", dump)
        for start in range(0, count, batch):
            write(start // batch)
    assert counts.total("update") + counts.total("skipped") == count
    assert counts.total("skipped") >= batch
    corrections = 0
    raced: set[str] = set()
    for entry in log(store, after=count):
        data = json.loads(entry.data)
        if data["timestamp"] == NEW:
            raced.add(data["id"])
        else:
            corrections += 1
            assert data["id"] not in raced, "a correction overwrote a newer operation"
    assert corrections == counts.total("update")
    assert {json.loads(data)["timestamp"] for data in live(store).values()} == {NEW}


@_LARGE
def test_consumers_of_a_running_agent_get_the_corrections_and_end_with_the_dumps_state(
    spark: SparkSession, tmp_path: Path, place: StorePlace
) -> None:
    rows = [row("video", str(n), DUMPED) for n in range(100, 1100)]
    with place.agent(tmp_path) as agent:
        assert agent.post([operation("insert", "video", str(n), OLD) for n in range(1000)]) == 200
        with (
            agent.follow("0") as first,
            agent.follow(types="video") as second,
            agent.follow(types="user") as other,
        ):
            known = fold(first.until("live"))
            counts = sync(
                spark,
                *place.argv,
                "--max-changes",
                "90%",
                write_dump(tmp_path / "dump.jsonl", rows),
            )
            assert [counts.total(name) for name in ("insert", "update", "delete")] == [
                100,
                900,
                100,
            ]
            assert fold(first.take(1100), dict(known)) == dump_state(rows)
            assert fold(second.take(1100), known) == dump_state(rows)
            assert agent.post(operation("insert", "user", "1")) == 204
            assert [event.key for event in other.take(1)] == ["user/1"]
        assert {
            key: event.data for key, event in agent.replicate(types="video").items()
        } == dump_state(rows)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_job_killed_half_way_is_finished_by_the_next_run(
    spark: SparkSession, tmp_path: Path, place: StorePlace
) -> None:
    count = 16_000
    store = place.store
    append(store, [operation("insert", "video", str(n), OLD) for n in range(10)])
    rows = [row("video", str(n), DUMPED) for n in range(count)]
    dump = write_dump(tmp_path / "dump.jsonl.gz", rows)
    command = [sys.executable, "-m", "oplog_sync", *place.argv, "--master", "local[2]", "-"]
    environ = {**os.environ, "SPARK_DRIVER_MEMORY": "512m"}
    with dump.open("rb") as file:  # standard input is recognised as gzip
        process = subprocess.Popen(
            command,
            start_new_session=True,
            stdin=file,
            stderr=subprocess.DEVNULL,
            env=environ,
            cwd=tmp_path,
        )
    try:
        _wait_for_entries(store, 1010, process)
    finally:
        os.killpg(
            process.pid, signal.SIGKILL
        )  # Python and Java; the task's worker may still write a little
        process.wait(DEADLINE)
    counts = sync(spark, *place.argv, dump)
    assert 0 < counts.total("insert") < count - 10
    assert live(store) == dump_state(rows)
    assert len(log(store)) == count + 10, "an object was corrected twice"


def _wait_for_entries(store: StoreLocation, count: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10 * DEADLINE
    with looking(store) as has:
        while not has(count):
            assert process.poll() is None, "the job ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
