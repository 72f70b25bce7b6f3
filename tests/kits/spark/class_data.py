"""The class data archive that ``oplog-sync`` writes, for the sessions of the tests, too."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pyspark

from oplog_sync.classes import SILENCE, SPARK, find_archive
from oplog_sync.jvm import check_java
from tests.kits.paths import CACHE, ROOT

# Files of the job that write the archive, or lines meanwhile. If they change, it writes another.
_WRITER = (
    "classes.py", "cli.py", "job.py", "jvm.py", "log4j2.properties", "report.py", "session.py",
)  # fmt: skip
_WRITTEN = CACHE / "spark-classes.json"
_ROW = '{"timestamp":"2020-01-01T00:00:00.000Z","type":"a","id":"1","parents":[]}\n'


@cache
def class_data_options() -> str:
    """Return options of Java for the driver of Spark. A file that does not fit has no effect."""
    return f"-XX:SharedArchiveFile={written().file} {SILENCE}"


class Written(msgspec.Struct):
    """``stderr``: of the job that has written the archive. ``writer``: hash of what it was."""

    file: str
    stderr: str
    writer: str


@cache
def written() -> Written:
    """Let the job write the archive, unless it is there and those files are the same."""
    modules = b"".join((ROOT / "oplog_sync" / each).read_bytes() for each in _WRITER)
    versions = f"{SPARK} {pyspark.__version__} {check_java()}".encode()
    writer = hashlib.sha256(modules + versions).hexdigest()
    with (CACHE / "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _WRITTEN.exists():
            found = msgspec.json.decode(_WRITTEN.read_bytes(), type=Written)
            if found.writer == writer and Path(found.file).exists():
                return found
        found = _write(writer)
        _WRITTEN.write_bytes(msgspec.json.encode(found))
    return found


def _write(writer: str) -> Written:
    """Run the job on one row."""
    shutil.rmtree(CACHE / "oplog-sync", ignore_errors=True)
    environ = {**os.environ, "XDG_CACHE_HOME": str(CACHE), "SPARK_SUBMIT_OPTS": ""}
    assert find_archive(check_java(), environ) is None  # as a first run does
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
    archive = find_archive(check_java(), environ)
    assert archive is not None
    assert archive.part is None, "the job has written no archive"
    return Written(str(archive.file), done.stderr, writer)
