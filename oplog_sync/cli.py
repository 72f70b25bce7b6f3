"""The command ``oplog-sync``; ``oplog_sync/__main__.py`` is the same as a spark-submit application."""

import logging
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from oplog_sync.errors import EXIT_FAILED, EXIT_OK, SyncError
from oplog_sync.settings import Settings, parse
from oplogd.errors import OplogError


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse(sys.argv[1:] if argv is None else argv)
    sys.exit(_run(settings))


def _run(settings: Settings) -> int:
    try:
        # Imported late: --help and a wrong flag need no Spark.
        from oplog_sync import session
        from oplog_sync.backend import make_backend
        from oplog_sync.failure import translating
        from oplog_sync.job import run
    except ImportError as error:
        return _fail(
            f"{error.name} is missing; in the checkout of oplog, run: pip install -c constraints.txt '.[sync]'"
        )

    if not settings.debug:
        _quieten()
    try:
        make_backend(settings.store)  # a wrong URL is told before Spark is started
        with translating():
            spark = session.start(settings.master, settings.debug)
        try:
            if not settings.debug:
                spark.sparkContext.setLogLevel("OFF")
            counts = run(spark, settings)
        finally:
            with suppress(Exception):  # Java may be gone
                spark.stop()
    except (OplogError, OSError) as error:
        if settings.debug:
            traceback.print_exc()
        code = error.exit_code if isinstance(error, SyncError) else EXIT_FAILED
        return _fail(str(error), code)
    print(counts.table())
    return EXIT_OK


def _quieten() -> None:
    """Keep PySpark and Py4J from logging an error, with its trace, that they raise as well."""
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _fail(message: str, code: int = EXIT_FAILED) -> int:
    print(f"oplog-sync: {message}", file=sys.stderr)
    return code
