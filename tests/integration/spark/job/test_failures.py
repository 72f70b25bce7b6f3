"""An error of Spark or Java becomes one sentence."""

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from oplog_sync.failure import reason
from tests.kits.agents.agent import DEADLINE


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "Java ended before the job did"),
        (ConnectionRefusedError(111, "Connection refused"), "Java ended before the job did"),
        (Py4JError("An error occurred while calling o26.read"), "Java ended before the job did"),
        (
            Exception("An error occurred\n: java.lang.OutOfMemoryError: Java heap space"),
            "Java ran out of memory; give it",
        ),
        (
            Exception(
                "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: "
                "Traceback (most recent call last):\n    __import__(name)\n"
                "ModuleNotFoundError: No module named 'oplog_sync.source'; x\n SQLSTATE: 38000"
            ),
            "a Python worker of Spark lacks the module oplog_sync; install oplog with its extra",
        ),
        (
            Exception("x\nCaused by: java.io.IOException: No space left on device\n"),
            "a disk is full",
        ),
        (
            Exception(
                "Encountered error while reading file file:///a/b%20c.gz.  SQLSTATE: "
                "K\nCaused by: x: Truncated source"
            ),
            "/a/b c.gz ends too early",
        ),
        (
            Exception("a\nCaused by: java.io.IOException: cannot open s3a://key:sec/ret@bucket/a"),
            "cannot open s3a://...bucket/a",
        ),
        (
            Exception("a\nCaused by: java.io.IOException: cannot open hdfs://name:8020/a@b"),
            "cannot open hdfs://name:8020/a@b",
        ),
        (
            Exception(
                "a\nCaused by: A: b\n\tat x\nCaused by: java.sql.SQLException: no "
                "jdbc:x://u:p@h/ here"
            ),
            "no ... here",
        ),
        (
            Exception("[SOME_CODE.OF_SPARK] It fails at s3a://key:secret@bucket/. SQLSTATE: 42000"),
            "It fails at s3a://...bucket/",
        ),
        (
            Exception("trace\noplogd.errors.StoreError: the store is unreachable\n\nat"),
            "the store is unreachable",
        ),
    ],
)
def test_an_error_becomes_a_sentence(error: Exception, sentence: str) -> None:
    told = reason(error)
    assert told.startswith(sentence)
    assert "\n" not in told


def _command(tmp_path: Path, *argv: str | Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "oplog_sync",
        "--store",
        "oplog.db",
        "--create",
        "--master",
        "local[2]",
        *map(str, argv),
    ]
    environ = {**os.environ, "SPARK_DRIVER_MEMORY": "512m", "TMPDIR": str(tmp_path)}
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _told(text: str) -> list[str]:
    """Return the lines without the start messages of Java and Spark."""
    begins = (
        "NOTE: Picked up",
        "WARNING: Using",
        "Setting default log level",
        "To adjust logging level",
    )
    return [line for line in text.splitlines() if not line.startswith(begins)]


def test_a_file_that_is_cut_off_ends_the_command_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "dump.csv.gz").write_bytes(gzip.compress(b"id,type")[:14])
    with _command(tmp_path, "--format", "csv", tmp_path / "dump.csv.gz") as process:
        _, told = process.communicate(timeout=4 * DEADLINE)
    assert process.returncode == 1
    assert len(_told(told)) == 1, told
    assert _told(told)[0].startswith(
        f"oplog-sync: the dump cannot be read: {tmp_path}/dump.csv.gz ends too early"
    )


def test_a_java_that_is_killed_ends_the_command_with_one_sentence(tmp_path: Path) -> None:
    with _command(tmp_path, "-") as process:
        assert process.stdin is not None
        process.stdin.write("begun")
        process.stdin.flush()
        _wait_for(lambda: any(tmp_path.glob("oplog-sync.*/stdin.*")), process)
        (java,) = [
            child
            for child in _children(process.pid)
            if Path(f"/proc/{child}/comm").read_text() == "java\n"
        ]
        os.kill(java, signal.SIGKILL)  # as the kernel does if memory is short
        _wait_for(
            lambda: Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()[0] == "Z",
            process,
        )
        _, told = process.communicate(timeout=4 * DEADLINE)
    assert process.returncode == 1
    assert len(_told(told)) == 1, told
    assert "Java ended before the job did, most likely for lack of memory; give it more" in told


def _wait_for(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 4 * DEADLINE
    while not is_so():
        assert process.poll() is None, "the command ended"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    children = [
        int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]
    return [*children, *(below for child in children for below in _children(child))]
