"""A standalone cluster of Spark on this machine, and the archive with the packages for it."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import oplog_kit
import oplog_sync
import oplogd
import pyspark_oplog
from oplog_sync.classes import SPARK
from tests.kits.agents.agent import DEADLINE
from tests.kits.spark.class_data import class_data_options

EXECUTORS = 2


def environ() -> dict[str, str]:
    """Return the environment of Spark's processes, with the tests' Python but no PYTHONPATH."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(SPARK),
    }
    daemon = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": class_data_options()}
    return {**inherited, **own, **daemon}


class Daemon:
    """A process of the cluster; it is killed with its executors when the block ends."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        command = [
            str(SPARK / "bin/spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--host",
            "127.0.0.1",
            *arguments,
        ]
        self._process = subprocess.Popen(
            [*command, "--webui-port", "0"], cwd=folder, env=environ(), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, pattern: str) -> str:
        """Return the first group of the pattern in the next matching line of the log."""
        while line := self._lines.get(timeout=2 * DEADLINE):
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"it ended without {pattern!r}")

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.put(line)
        self._lines.put("")


class Standalone(NamedTuple):
    """A cluster that some tests share. ``work``: the folder of its worker."""

    master: str
    work: Path

    def executors(self) -> set[Path]:
        """Return the folders of all executors so far."""
        return {*self.work.glob("app-*/*")}


@contextmanager
def cluster(folder: Path, workers: int = 1) -> Iterator[str]:
    """Yield the URL of a master. Each worker starts executors, each with a folder of its own."""
    master = Daemon(folder / "master", "master.Master", "--port", "0")
    daemons = [master]
    try:
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        size = ("--cores", str(EXECUTORS), "--memory", f"{600 * EXECUTORS}m")
        for number in range(workers):
            work = folder / f"worker{number or ''}"
            daemons.append(Daemon(work, "worker.Worker", *size, "--work-dir", str(work), url))
            master.wait_for(r"(Registering worker)")
        yield url
    finally:
        for daemon in reversed(daemons):
            daemon.kill()


def packed(path: Path) -> Path:
    """Write the packages into an archive for --py-files."""
    with zipfile.ZipFile(path, "w") as archive:
        for package in (oplogd, oplog_kit, oplog_sync, pyspark_oplog):
            folder = Path(package.__path__[0])
            for file in folder.rglob("*.py"):
                archive.write(file, file.relative_to(folder.parent))
    return path
