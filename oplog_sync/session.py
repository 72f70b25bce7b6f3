"""The Spark session of the job."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError

JAVA_VERSION = 17
_SECRETS = r"(?i)secret|password|token|access[.]?key|mongodb(\+srv)?://"
"""What Spark's pages hide: its own default, and the command line of a job on MongoDB."""

_TIME_ZONE = "spark.sql.session.timeZone"

_INSTALL = "install one, on Debian and Ubuntu with `apt install default-jre-headless`, or name its folder in JAVA_HOME"


def check_java() -> None:
    """Raise SyncError unless there is a Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise SyncError(f"Spark needs Java {JAVA_VERSION} or later and there is none; {_INSTALL}")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < JAVA_VERSION:
        raise SyncError(f"Spark needs Java {JAVA_VERSION} or later, {java} is not; {_INSTALL}")


def start(master: str | None, debug: bool) -> SparkSession:
    """The session spark-submit prepared, or a new one. ``master`` None: spark-submit's, else all cores of this machine.

    Raises SyncError where Java is missing.
    """
    builder = SparkSession.builder.appName("oplog-sync").config("spark.redaction.regex", _SECRETS)
    # What is kept of a comparison is small: in as many parts as the join had, its tasks would take longer to start than to run.
    builder = builder.config("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", "true")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        if master is not None:
            builder = builder.master(master)
        return builder.getOrCreate()
    check_java()
    master = master or "local[*]"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.sql.shuffle.partitions", "64").config("spark.ui.enabled", "false")
        if "SPARK_DRIVER_MEMORY" not in os.environ:
            builder = builder.config("spark.driver.memory", "2g")
    if not debug:
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
    show_bar = str(sys.stderr.isatty()).lower()
    return builder.master(master).config("spark.ui.showConsoleProgress", show_bar).getOrCreate()


@contextmanager
def utc(spark: SparkSession) -> Iterator[None]:
    """Let times without a zone be UTC, in Spark and in this machine's Java, until the block ends.

    Spark's setting counts for files, on all executors. Drivers of databases go by Java's.
    """
    assert spark._jvm is not None
    zones = spark._jvm.java.util.TimeZone
    in_java, in_spark = zones.getDefault(), spark.conf.get(_TIME_ZONE, None)
    zones.setDefault(zones.getTimeZone("UTC"))
    spark.conf.set(_TIME_ZONE, "UTC")
    try:
        yield
    finally:
        with suppress(Exception):  # Java may be gone, which the error in flight says
            zones.setDefault(in_java)
            if in_spark is None:
                spark.conf.unset(_TIME_ZONE)
            else:
                spark.conf.set(_TIME_ZONE, in_spark)
