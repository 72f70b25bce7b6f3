"""The Spark session of the job."""

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.sql import SparkSession

from oplog_sync.classes import JAVA_OPTIONS, find_archive
from oplog_sync.jvm import JAVA, check_java, java_class

_Value = bool | float | int | str | None

# Spark's pages hide matching values: Spark's own default, and the command line of a job on MongoDB.
_SECRETS = r"(?i)secret|password|token|access[.]?key|mongodb(\+srv)?://"

_WARNING = b"WARNING: Using incubator modules"
# Java's lines before it: its options from variables.
_NOTES = (b"NOTE: ", b"Picked up ")

# How long the last lines of a Java that has ended may take to pass.
_LAST_LINES_SECONDS = 8.0

_LOG_CONFIG = re.compile(r"-Dlog4j2?\.configurationFile=")
# Spark's own log configurations, in effect if the user gives none.
_DEFAULT_LOG_CONFIGS = "org/apache/spark/log4j2-"
_LOG4J = "org.apache.logging.log4j"

# Up to this many cores Java's simplest garbage collector takes the least time.
_FEW_CORES = 4

# They may hold options of Java.
_CONF_FILES = ("java-opts", "spark-defaults.conf", "spark-env.sh")

_TIME_ZONE = "spark.sql.session.timeZone"

_ALWAYS: dict[str, _Value] = {
    # A comparison's result is small. It needs fewer partitions than the join.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # The lines of this job in Spark's errors help no user, and each expression would ask for them.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # A worker holds some batches, and rows may have 64 KiB each.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
}
_LONG: dict[str, _Value] = {"spark.sql.shuffle.partitions": "64"}
# The plan of few rows takes more time than their computation, and is not worth compiling.
_BRIEF: dict[str, _Value] = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "false",
}

# What the options of a read or a write may hold: the URL of a database, a user in an address.
_SECRET_OPTIONS = r"(?i)^password$|mongodb(\+srv)?://|//[^/\s]*@"
# The same in the text of a plan or of an error, up to its end.
_SECRET_STRINGS = (
    r"(?i)mongodb(\+srv)?://(\S*@)?[^\s,\])}]*|(?<=://)[^/\s]*@"
    r"|(?<=\(password,).*?(?=\), \(|\)\)|$)"
)


def hide_secrets(spark: SparkSession) -> None:
    """Let the session hide URLs with passwords in its plans and messages.

    The user's own expressions stay in effect. Options named ``password`` are hidden by Spark.
    """
    for name, ours, default in (
        ("spark.sql.redaction.options.regex", _SECRET_OPTIONS, "(?i)url"),
        ("spark.sql.redaction.string.regex", _SECRET_STRINGS, None),
    ):
        given = spark.conf.get(name, default)
        if not given:
            spark.conf.set(name, ours)
        elif ours not in given:
            spark.conf.set(name, f"{given}|{ours}")


def start(
    master: str | None,
    debug: bool,
    is_brief: bool = False,
    *,
    name: str = "oplog-sync",
    java: Sequence[str] = (),
) -> SparkSession:
    """Return the session of spark-submit, or a new one. Raises SyncError if Java is missing.

    ``master`` None: the master of spark-submit, else all cores of this machine. ``is_brief``: Java
    shall optimize less. ``name``: of the application. ``java``: options of a Java that is started.
    """
    builder = SparkSession.builder.appName(name).config("spark.redaction.regex", _SECRETS)
    builder = builder.config(map=_ALWAYS)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # of spark-submit
        if master is not None:
            builder = builder.master(master)
        if not debug:
            _quieten()
        return builder.getOrCreate()
    java_version = check_java()
    master = master or "local[*]"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config(map=_BRIEF if is_brief else _LONG)
        builder = builder.config("spark.ui.enabled", "false")
        if "SPARK_DRIVER_MEMORY" not in os.environ:
            builder = builder.config("spark.driver.memory", "2g")
    is_quiet = not debug and not _has_log_config()
    # Not spark.driver.extraJavaOptions: it would replace the user's options.
    options = [*java, os.environ.get("SPARK_SUBMIT_OPTS", "")]
    if is_quiet:
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        options.insert(0, f"-Dlog4j2.configurationFile={quiet}")
    if is_brief:
        options.insert(0, "-XX:TieredStopAtLevel=1")
    is_simple = is_brief or (os.cpu_count() or 1) <= _FEW_CORES
    if master.startswith("local") and is_simple and not _chooses_collector():
        options.insert(0, "-XX:+UseSerialGC")
    archive = find_archive(java_version, os.environ)
    if archive is not None:
        options.insert(0, archive.options)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options).strip()
    show_bar = str(sys.stderr.isatty()).lower()
    builder = builder.master(master).config("spark.ui.showConsoleProgress", show_bar)
    JAVA.archive = archive
    with _without_warning() if is_quiet else nullcontext() as stderr, JAVA.noted(stderr):
        session = builder.getOrCreate()
    if is_quiet:
        session.sparkContext.setLogLevel("OFF")
    return session


def stop(spark: SparkSession) -> None:
    """Stop Spark. The server of accumulators ends with the process: its stop takes a second."""
    context: Any = spark.sparkContext
    server = context._accumulatorServer
    if isinstance(server, AccumulatorTCPServer):
        context._accumulatorServer = None
        vars(server)["handle_error"] = lambda *_: None  # its connection breaks when Java ends
    spark.stop()


@contextmanager
def _without_warning() -> Iterator[int]:
    """Give the standard error of a Java that is started in the block: a thread copies it to ours.

    It drops the warning about a module that Spark adds. Java writes the end of this line by itself,
    so our own lines take another way. If Java has ended by itself, the block ends after its last
    line.
    """
    stderr, (source, target) = os.dup(2), os.pipe()
    copying = threading.Thread(target=_copy, args=(source, stderr), name="stderr", daemon=True)
    copying.start()
    try:
        try:
            yield target
        finally:
            os.close(target)
    except Exception:  # not after a signal: what Java has begun may keep the pipe open
        if not JAVA.is_running():
            copying.join(_LAST_LINES_SECONDS)
        raise


def _copy(source: int, target: int) -> None:
    with open(source, "rb", buffering=0) as lines, suppress(OSError):
        line = lines.readline()
        while line.startswith((_WARNING, *_NOTES)):
            if not line.startswith(_WARNING):
                os.write(target, line)
            line = lines.readline()
        while line:
            os.write(target, line)
            line = os.read(source, 1 << 16)


def _has_log_config() -> bool:
    """Return whether the user has configured Spark's logs. spark-defaults.conf comes too late."""
    in_options = any(_LOG_CONFIG.search(os.environ.get(name, "")) for name in JAVA_OPTIONS)
    return in_options or any(_conf().glob("log4j2.*"))


def _chooses_collector() -> bool:
    """Return whether the user's options may name a garbage collector: Java refuses a second one."""
    given = [os.environ.get(name, "") for name in (*JAVA_OPTIONS, "PYSPARK_SUBMIT_ARGS")]
    in_options = any(name in each for each in given for name in ("GC", "@", "-XX:Flags"))
    return in_options or any((_conf() / name).exists() for name in _CONF_FILES)


def _conf() -> Path:
    """Return the folder of Spark's configuration files."""
    home = Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0])
    return Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")


def _quieten() -> None:
    """Turn off Spark's logs if they have spark-submit's default configuration."""
    SparkContext._ensure_initialized()
    # Spark sets up its logs at the first message and would reset the level, so log one now.
    getattr(java_class("org.apache.spark.util.Utils$"), "MODULE$").log()
    context = java_class(f"{_LOG4J}.LogManager").getContext(False)
    source = context.getConfiguration().getConfigurationSource()
    if _DEFAULT_LOG_CONFIGS in (source.getLocation() or ""):
        configurator = java_class(f"{_LOG4J}.core.config.Configurator")
        configurator.setRootLevel(java_class(f"{_LOG4J}.Level").OFF)


@contextmanager
def utc(spark: SparkSession) -> Iterator[None]:
    """Read times without a zone as UTC until the block ends.

    Spark's setting applies to files, on all executors. Database drivers use Java's time zone.
    """
    zones = java_class("java.util.TimeZone")
    in_java, in_spark = zones.getDefault(), spark.conf.get(_TIME_ZONE, None)
    zones.setDefault(zones.getTimeZone("UTC"))
    spark.conf.set(_TIME_ZONE, "UTC")
    try:
        yield
    finally:
        with suppress(Exception):  # Java may be gone: the error in flight says so
            zones.setDefault(in_java)
            if in_spark is None:
                spark.conf.unset(_TIME_ZONE)
            else:
                spark.conf.set(_TIME_ZONE, in_spark)
