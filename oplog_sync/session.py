"""The Spark session of the job."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError

JAVA_VERSION = 17
_SECRETS = r"(?i)secret|password|token|access[.]?key|mongodb(\+srv)?://"
"""What Spark's pages hide: its own default, and the command line of a job on MongoDB."""

_END_SECONDS = 8.0
"""How long Java may take to remove its files when the job is stopped."""

_LOG_CONFIG = re.compile(r"-Dlog4j2?\.configurationFile=")
_DEFAULT_LOG_CONFIGS = "org/apache/spark/log4j2-"
"""Where Spark keeps the configurations of its logs that count if the user gives none."""

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
        if not debug:
            _quieten()
        return builder.getOrCreate()
    check_java()
    master = master or "local[*]"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.sql.shuffle.partitions", "64").config(
            "spark.ui.enabled", "false"
        )
        if "SPARK_DRIVER_MEMORY" not in os.environ:
            builder = builder.config("spark.driver.memory", "2g")
    is_quiet = not debug and not _has_log_config()
    if is_quiet:
        # Not spark.driver.extraJavaOptions, which would replace the user's.
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        given = os.environ.get("SPARK_SUBMIT_OPTS", "")
        os.environ["SPARK_SUBMIT_OPTS"] = f"-Dlog4j2.configurationFile={quiet} {given}".strip()
    show_bar = str(sys.stderr.isatty()).lower()
    session = builder.master(master).config("spark.ui.showConsoleProgress", show_bar).getOrCreate()
    if is_quiet:
        session.sparkContext.setLogLevel("OFF")
    return session


def end_java() -> None:
    """End Spark, if this process has started it: calls to it fail then. A task's transaction stays whole."""
    java: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        return
    java.terminate()  # it removes its files
    try:
        java.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _has_log_config() -> bool:
    """Whether the user has configured Spark's logs. What spark-defaults.conf says counts anyway: it comes later."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(
        os.environ.get("SPARK_HOME", "/nonexistent"), "conf"
    )
    options = (
        os.environ.get(name, "")
        for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
    )
    return any(Path(folder).glob("log4j2.*")) or any(_LOG_CONFIG.search(given) for given in options)


def _quieten() -> None:
    """Let Spark log nothing, if its logs are as spark-submit configures them by itself."""
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None
    # Spark sets its logs up at the first message, so make it do that now: it would set the level back.
    getattr(getattr(jvm.org.apache.spark.util, "Utils$"), "MODULE$").log()
    log4j = jvm.org.apache.logging.log4j
    source = log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource()
    if _DEFAULT_LOG_CONFIGS in (source.getLocation() or ""):
        log4j.core.config.Configurator.setRootLevel(log4j.Level.OFF)


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
