"""The class data archive of ``oplog-sync``, for the sessions of the tests, too."""

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache

from oplog_sync.classes import SILENCE, find_archive
from oplog_sync.jvm import check_java
from tests.kits.paths import CACHE, ROOT

_ROW = '{"timestamp":"2020-01-01T00:00:00.000Z","type":"a","id":"1","parents":[]}\n'


@cache
def class_data_options() -> str:
    """Return options of Java for the driver of Spark. Let the job write the file if it is missing.

    Java starts without the file if it does not fit.
    """
    environ = {**os.environ, "XDG_CACHE_HOME": str(CACHE), "SPARK_SUBMIT_OPTS": ""}
    archive = find_archive(check_java(), environ) or find_archive(check_java(), environ)
    assert archive is not None
    with (CACHE / "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.file.exists():
            _write(environ)
    return f"-XX:SharedArchiveFile={archive.file} {SILENCE}"


def _write(environ: dict[str, str]) -> None:
    """Run the job on one row."""
    folder = CACHE / "spark-classes.part"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "dump.jsonl").write_text(_ROW)
    flags = ("--master", "local[1]", "--store", "oplog.db", "--create", "dump.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "oplog_sync", *flags],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**environ, "PYTHONPATH": str(ROOT), "SPARK_DRIVER_MEMORY": "512m"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(folder)
