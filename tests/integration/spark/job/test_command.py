"""The command in a process of its own: signals and the Java options of its user."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.spark.helpers import live, looking, row, write_dump


def _wait(process: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 4 * DEADLINE
    while not holds():
        assert process.poll() is None, "the job ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_spooled_input_behind(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    spool, conf, errors = tmp_path / "spool", tmp_path / "conf", tmp_path / "stderr"
    spool.mkdir()
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.driver.extraJavaOptions -Xlog:gc:file={tmp_path}/gc.log\n"
    )
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", f"{n:04}") for n in range(1000)])
    store = tmp_path / "oplog.db"
    # So slow that the emission of 1,000 takes four minutes: it cannot end before the signal.
    flags = ["--store", str(store), "--create", "--master", "local[1]", "--max-rate", "4"]
    command = [sys.executable, "-m", "oplog_sync", *flags, "-"]
    environ = {
        **os.environ, "TMPDIR": str(spool), "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_DRIVER_MEMORY": "512m", "SPARK_CONF_DIR": str(conf),
    }  # fmt: skip
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=stderr, env=environ,
            # A shell that runs the tests in the background ignores SIGINT.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        )  # fmt: skip
    assert process.stdin is not None
    spooled: Callable[[], bool] = lambda: bool(list(spool.glob("oplog-sync.*/stdin.*")))  # noqa: E731
    try:
        process.stdin.write(dump.read_bytes())
        process.stdin.flush()
        if number == signal.SIGTERM:  # while it emits
            process.stdin.close()
            _wait(process, lambda: b" of 1,000 corrections, " in errors.read_bytes())
            assert spooled()
        else:  # while it reads
            _wait(process, spooled)
        process.send_signal(number)
        assert process.wait(DEADLINE) == code, errors.read_text()
    finally:
        process.kill()
        process.wait(DEADLINE)
        process.stdin.close()
    assert list(spool.glob("oplog-sync.*")) == []
    lines = errors.read_text().splitlines()
    assert f"oplog-sync: stopped by {number.name}; run it again for the rest" in lines
    assert [line for line in lines if "Traceback" in line] == [], lines
    assert (tmp_path / "gc.log").exists(), "the user's Java options were replaced"
    if number == signal.SIGTERM:
        with looking(store) as has:
            assert has(1)
        assert len(live(store)) < 1000
