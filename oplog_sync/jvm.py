"""Spark's Java process, for which PySpark has no public name."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from oplog_sync.classes import ClassArchive
from oplog_sync.errors import SyncError

JAVA_VERSION = 17

# How long Java may take to remove its files when the job is stopped.
_END_SECONDS = 8.0

# How long Java may take to write the class data archive at its end.
_ARCHIVE_SECONDS = 120.0

_INSTALL = (
    "install one, on Debian and Ubuntu with `apt install default-jre-headless`, "
    "or name its folder in JAVA_HOME"
)


def java_class(name: str) -> Any:
    """Return a class of the Java that runs, by its full name, such as ``java.util.TimeZone``.

    For a name in steps (``jvm.java.util.TimeZone``), Java searches Spark's 250 archives for a class
    ``java`` in each package that PySpark imports: 2 ms instead of 0.1.
    """
    assert SparkContext._jvm is not None
    return getattr(SparkContext._jvm, name)


def hadoop_configuration(spark: SparkSession) -> Any:
    """Return the settings of Hadoop in a session."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def hadoop_path(path: str) -> Any:
    """Return Hadoop's object for a path. Raises PySparkException if it cannot be one."""
    return java_class("org.apache.hadoop.fs.Path")(path)


def check_java() -> str:
    """Return the versions of Java. Raise SyncError unless Spark finds a recent Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    needed = f"Spark needs Java {JAVA_VERSION} or later"
    if java is None:
        raise SyncError(f"{needed}, and there is no Java; {_INSTALL}")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < JAVA_VERSION:
        raise SyncError(f"{needed}, and {java} is not; {_INSTALL}")
    # Java also names options from its variables.
    return "\n".join(re.findall(r"^.*(?:version \"|\(build ).*$", shown, re.MULTILINE))


class JavaProcess:
    """The Java that this process starts, from the start on: PySpark tells of it when it answers."""

    def __init__(self) -> None:
        self.archive: ClassArchive | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def noted(self, stderr: int | None) -> Iterator[None]:
        """Take note of a Java that the block starts. ``stderr``: for it; None: that of this one."""
        popen: Any = vars(java_gateway)["Popen"]

        def started(*args: Any, **options: Any) -> Any:
            self._process = popen(*args, **options, stderr=stderr)
            return self._process

        vars(java_gateway)["Popen"] = started
        try:
            yield
        finally:
            vars(java_gateway)["Popen"] = popen

    def finish(self) -> None:
        """End Java after Spark has stopped, if it is to write the class data archive at its end."""
        archive, java = self.archive, self._running()
        if archive is None or archive.part is None or java is None:
            return
        try:
            assert java.stdin is not None
            java.stdin.close()  # its gateway ends
            is_whole = java.wait(_ARCHIVE_SECONDS) == 0
        except (OSError, subprocess.TimeoutExpired):
            java.kill()
            java.wait()
            is_whole = False
        if is_whole:
            archive.keep()
        else:
            archive.drop()

    def kill(self) -> None:
        """Let ``finish`` end at once, without an archive. For a signal meanwhile: does not wait."""
        if (java := self._running()) is not None:
            java.kill()

    def end(self) -> None:
        """End Spark if this process has started it. Then calls to it fail; a transaction is whole.

        Java leaves no archive then.
        """
        java = self._running()
        if java is None:
            return
        java.terminate()  # it removes its files
        try:
            java.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()
        if self.archive is not None:
            self.archive.drop()

    def is_running(self) -> bool:
        """Return whether a Java that this process has started is there."""
        java = self._running()
        return java is not None and java.poll() is None

    def _running(self) -> subprocess.Popen[bytes] | None:
        found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
        return found or self._process


JAVA = JavaProcess()
