"""Turn errors of Spark, Java and the files they read into one sentence each, told once."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from oplog_sync.errors import SyncError

SPARK_ERRORS = (PySparkException, Py4JError)
QUOTING = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that quote values of rows."""

_OFF = logging.CRITICAL + 1

_MORE_MEMORY = (
    "give it more, for instance SPARK_DRIVER_MEMORY=8g (on a cluster also --executor-memory)"
)
_JAVA_ENDED = f"Java ended before the job did, most likely for lack of memory; {_MORE_MEMORY}"

# Sentences by pattern. The first match counts. {file}: the file being read. {1}: the first group.
_CAUSES = {
    r"OutOfMemoryError|GC overhead limit": f"Java ran out of memory; {_MORE_MEMORY}",
    r"No space left on device": (
        "a disk is full; name another folder for Spark's files in SPARK_LOCAL_DIRS"
    ),
    r"Unexpected end of input stream|unexpected end of stream|Truncated source"
    r"|Unexpected end of ZLIB": "{file} ends too early: it was cut off; copy or export it again",
    r"not a gzip file|incorrect header check|Unknown frame descriptor"
    r"|not in (?:the )?BZip2 format": "{file} is not compressed as its name says; rename the file",
    r"CRC failure|crc error|incorrect data check"
    r"|invalid (?:block|distance|stored|code|literal|bit)|Data corruption"
    r"|ChecksumException|bad block header|Corrupted block|doesn't match checksum": (
        "{file} is damaged; copy or export it again"
    ),
    r"is not a Parquet file|CANNOT_READ_FILE_FOOTER|is too small to be a Parquet": (
        "{file} is not a complete Parquet file; name only Parquet files, or export the file again"
    ),
    r"CSV header does not conform|Number of column in CSV header": (
        "{file} has another header than the other files; all CSV files need the same columns "
        "in the same order"
    ),
    r"TIMESTAMP\(NANOS": (
        "its Parquet files hold times in nanoseconds; Spark does not read them; write "
        "microseconds (pandas and pyarrow: coerce_timestamps='us', "
        "allow_truncated_timestamps=True)"
    ),
    r"PARQUET_TYPE_ILLEGAL\] ([^\n]*?)\.? SQLSTATE": "Spark does not read its Parquet files: {1}",
    r"CANNOT_MERGE_SCHEMAS|PARQUET_COLUMN_DATA_TYPE_MISMATCH": (
        "{file} has a column of another type than the other files; write all files with the same "
        "types"
    ),
    r"No FileSystem for scheme \"([^\"]+)\"": (
        "Spark cannot read {1}:// paths; give spark-submit the packages for them"
    ),
    r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.(\w+)\.\S+ not found": (
        "Spark has no package for {1}:// paths; for s3a start the job by spark-submit "
        "--packages org.apache.hadoop:hadoop-aws:<the version of Spark's Hadoop>"
    ),
    r"No suitable driver|ClassNotFoundException: (?!org\.apache\.)[\w.$]*[Dd]river": (
        "Spark lacks the database's JDBC driver; give spark-submit its jar with --jars or "
        "--packages, and --option driver=CLASS"
    ),
    r"Permission denied|AccessControlException|AccessDeniedException|Access Denied": (
        "access to {file} is denied"
    ),
    r"FILE_NOT_EXIST|FileNotFoundException"
    r"|It is possible the underlying files have been updated": (
        "{file} was removed or replaced while it was read; run the job again"
    ),
    r"COLUMN_ALREADY_EXISTS\] The column (\S+) already": (
        "there are two columns {1} in upper and lower case; the dump needs one"
    ),
    r"UNSUPPORTED_FEATURE\.TIME_TRAVEL": (
        "the format of the table keeps no earlier states; leave --as-of out"
    ),
    r"TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+) cannot": (
        "there is no table {1} in Spark's catalog"
    ),
    r"PATH_NOT_FOUND\] Path does not exist: (\S+?)\.? ": "there is no {1}",
    r"ModuleNotFoundError: No module named '(\w+)": (
        "a Python worker of Spark lacks the module {1}; install oplog with its extra sync on every "
        "machine, or send both with the job (docs/operate/spark.md)"
    ),
    r"Python worker exited unexpectedly|Python worker failed to connect back": (
        "a Python worker of Spark ended unexpectedly, most likely for lack of memory"
    ),
    r"Answer from Java side is empty|Error while (?:sending|receiving)"
    r"|trying to connect to the Java server|does not exist in the JVM|Connection refused"
    r"|\AAn error occurred while calling \S+\Z": (  # and nothing more
        _JAVA_ENDED
    ),
}
_OURS = re.compile(r"^(?:oplogd|oplog_sync)\.errors\.\w+: (.*)$")
_FILE = re.compile(r"(?:while reading file |RuntimeException: )(\w+:/\S+?)(?:\.?\s|$)")
_CAUSED_BY = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_JDBC_URL = re.compile(r"jdbc:\S+")
# A user, or a user and a password, maybe with slashes. Not the port of a host.
_CREDENTIALS = re.compile(r"(?<=://)[^/@:\s]*(?::(?!\d+/)[^@\s]*)?@")

_NOISE = re.compile(r"^(?:An error occurred while calling .*|: )$|^An exception was thrown")


@contextmanager
def translating() -> Iterator[None]:
    """Raise SyncError with one sentence for an error of Spark or Java. The cause has the trace."""
    try:
        yield
    except (*SPARK_ERRORS, ConnectionError) as error:
        raise SyncError(reason(error)) from error


def reason(error: BaseException) -> str:
    """Return one sentence. If a trace has errors of this project, the last one counts."""
    if (ours := own_reason(error)) is not None:
        return ours
    text = str(error)
    if isinstance(error, ConnectionError | EOFError):
        return _JAVA_ENDED
    for pattern, sentence in _CAUSES.items():
        if found := re.search(pattern, text):
            return sentence.format(found[0], *found.groups(), file=_file(text))
    causes = _CAUSED_BY.findall(text)
    lines = map(str.strip, text.splitlines())
    first = next(
        (line.removeprefix(": ") for line in lines if line and not _NOISE.match(line)),
        type(error).__name__,
    )
    return f"{_shown(causes[-1] if causes else first)} (--debug shows more)"


def own_reason(error: BaseException) -> str | None:
    """Return what the last error of this project in a trace says. None: there is none."""
    lines = map(str.strip, str(error).splitlines())
    ours = [found[1] for line in lines if (found := _OURS.match(line))]
    return ours[-1] if ours else None


def _file(text: str) -> str:
    found = _FILE.search(text)
    return shown_path(unquote(found[1])) if found else "a file"


def shown_path(path: str) -> str:
    """Return a path as users write it: without credentials, a local one without a scheme."""
    return _CREDENTIALS.sub("...", re.sub(r"^file:/+", "/", path))


def _shown(message: str) -> str:
    """Remove Spark's error codes and the credentials in URLs."""
    message = re.sub(r"^\[[A-Z0-9_.]+\] | SQLSTATE: \w+;?", "", message.strip())
    return _CREDENTIALS.sub("...", _JDBC_URL.sub("...", message)).rstrip(". ")


def silence_queries() -> None:
    """Let PySpark log no errors of queries: it raises them, too."""
    for name in QUOTING:
        # As PySpark makes them: an ordinary logger of that name would refuse its fields.
        PySparkLogger.getLogger(name).setLevel(_OFF)


def silence_connection() -> None:
    """Let Py4J log no errors of its connection to Java: it raises them, too."""
    logging.getLogger("py4j").setLevel(_OFF)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname
