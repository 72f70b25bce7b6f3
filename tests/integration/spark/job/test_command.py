"""The command in a process of its own: signals and the Java options of its user."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kits.agents.agent import DEADLINE
from tests.kits.spark.helpers import (
    StorePlace,
    dump_state,
    live,
    log,
    looking,
    row,
    sync,
    write_dump,
)

_COMMAND = ("-m", "oplog_sync")
# The command before its Spark has anything to do.
_COMMAND_WITHOUT_JAVA = (
    "-c",
    """
from unittest.mock import MagicMock
from oplog_sync import cli, session
from pyspark import SparkContext
SparkContext._jvm = spark = MagicMock()
spark.sparkContext.master = "local[1]"
session.start = lambda *_: spark
cli.main()
""",
)


def _stop(
    number: signal.Signals,
    spool: Path,
    is_time: Callable[[], bool],
    *command: str,
    dump: Path | None = None,
    **more: str,
) -> None:
    """Run the command on its standard input, stop it with the signal, and check what it leaves.

    ``dump`` None: the standard input goes on until the command ends.
    """
    spool.mkdir()
    errors = spool.with_name("stderr")
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, *command, "-"], stdin=subprocess.PIPE, stderr=stderr,
            env={**os.environ, "TMPDIR": str(spool), **more},
            # A shell that runs the tests in the background ignores SIGINT.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        )  # fmt: skip
    assert process.stdin is not None
    try:
        process.stdin.write(dump.read_bytes() if dump else b"begun")
        process.stdin.flush()
        if dump:
            process.stdin.close()
        deadline = time.monotonic() + 4 * DEADLINE
        while not (list(spool.glob("oplog-sync.*/stdin.*")) and is_time()):
            assert process.poll() is None, "the job ended too early"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(DEADLINE) == 128 + number, errors.read_text()
    finally:
        process.kill()
        process.wait(DEADLINE)
        process.stdin.close()
    assert list(spool.glob("oplog-sync.*")) == []
    lines = errors.read_text().splitlines()
    assert f"oplog-sync: stopped by {number.name}; run it again for the rest" in lines
    assert [line for line in lines if "Traceback" in line] == [], lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_reads_leaves_no_spooled_input_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    flags = ("--store", str(tmp_path / "oplog.db"), "--create")
    _stop(number, tmp_path / "spool", lambda: True, *_COMMAND_WITHOUT_JAVA, *flags)


@pytest.mark.parametrize("place", ["mongo-plain"], indirect=True)
def test_ctrl_c_while_it_emits_leaves_no_spooled_input_behind_and_the_next_run_finishes(
    spark: SparkSession, tmp_path: Path, place: StorePlace
) -> None:
    rows = [row("video", f"{n:04}") for n in range(1000)]
    dump = write_dump(tmp_path / "dump.jsonl", rows)
    # What spark-defaults.conf is. With a folder for it, Java would map no classes: class_data.py.
    defaults = tmp_path / "defaults.conf"
    defaults.write_text(f"spark.driver.extraJavaOptions -Xlog:gc:file={tmp_path}/gc.log\n")
    # So slow that the emission of 1,000 takes four minutes: it cannot end before the signal.
    flags = ("--create", "--master", "local[1]", "--max-rate", "4")
    with looking(place.store) as has:
        _stop(
            signal.SIGINT, tmp_path / "spool", lambda: has(1), *_COMMAND, *place.argv, *flags,
            dump=dump,
            SPARK_LOCAL_DIRS=str(tmp_path), SPARK_DRIVER_MEMORY="512m",
            PYSPARK_SUBMIT_ARGS=f"--properties-file {defaults} pyspark-shell",
        )  # fmt: skip
    assert (tmp_path / "gc.log").exists(), "the user's Java options were replaced"
    counts = sync(spark, *place.argv, dump)
    assert 0 < counts.total("insert") < 1000
    assert live(place.store) == dump_state(rows)
    assert len(log(place.store)) == 1000, "an object was corrected twice"
