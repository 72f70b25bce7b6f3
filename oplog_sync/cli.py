"""The command ``oplog-sync``; ``oplog_sync/__main__.py`` is the same as a spark-submit application."""

import sys
import traceback
from collections.abc import Sequence

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
        from oplog_sync.job import run
    except ImportError as error:
        return _fail(
            f"{error.name} is missing; in the checkout of oplog, run: pip install -c constraints.txt '.[sync]'"
        )
    from pyspark.errors import PySparkException

    try:
        make_backend(settings.store)  # a wrong URL is told before Spark is started
        spark = session.start(settings.master, settings.debug)
        try:
            counts = run(spark, settings)
        finally:
            spark.stop()
    except (OplogError, PySparkException) as error:
        if settings.debug:
            traceback.print_exc()
        code = error.exit_code if isinstance(error, SyncError) else EXIT_FAILED
        return _fail(reason(error), code)
    print(counts.table())
    return EXIT_OK


def reason(error: Exception) -> str:
    """One sentence. An error of a Spark task is the last line of the trace it was raised with."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith(("oplogd.errors.", "oplog_sync.errors."))]
    if ours:
        return ours[-1].partition(": ")[2]
    return lines[0] if lines else type(error).__name__


def _fail(message: str, code: int = EXIT_FAILED) -> int:
    print(f"oplog-sync: {message}", file=sys.stderr)
    return code
