"""The classes that Spark loads, in a file that Java maps instead of reading and checking each."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyspark

from tests.kits.paths import CACHE, ROOT

# Without links, as Java names it: it maps the classes only under the same names.
SPARK = Path(pyspark.__file__).resolve().parent
# Java says at every start if it cannot use the file, and lists classes that do not fit in it.
_SILENCE = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_ROW = '{"timestamp":"2020-01-01T00:00:00.000Z","type":"a","id":"1","parents":[]}\n'


@cache
def class_data_options() -> str:
    """Return options of Java for the driver of Spark. Write the file first if it is missing.

    Java starts without the file if it does not fit: after an update of Java, for example.
    """
    version = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    key = hashlib.sha256(f"{SPARK} {pyspark.__version__}".encode() + version).hexdigest()[:16]
    CACHE.mkdir(exist_ok=True)
    file = CACHE / f"spark-classes-{key}.jsa"
    with (CACHE / "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            _write(file)
    return f"-XX:SharedArchiveFile={file} {_SILENCE}"


def _write(file: Path) -> None:
    """Run the job on one row and write the classes that it loaded."""
    folder = file.with_suffix(".part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "dump.jsonl").write_text(_ROW)
    done = subprocess.run(
        [
            SPARK / "bin/spark-submit", "--master", "local[1]", "--driver-memory", "512m",
            "--conf", "spark.ui.enabled=false", ROOT / "oplog_sync/__main__.py",
            "--store", "oplog.db", "--create", "dump.jsonl",
        ],
        cwd=folder, capture_output=True, text=True, check=False,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={folder}/classes.jsa {_SILENCE}",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "classes.jsa").rename(file)
    shutil.rmtree(folder)
