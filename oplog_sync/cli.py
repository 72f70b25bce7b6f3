"""The command ``oplog-sync``. ``oplog_sync/__main__.py`` is the same for spark-submit."""

import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from oplog_kit.extras import how_to_install
from oplog_kit.signals import ending_signals
from oplog_sync.errors import EXIT_FAILED, EXIT_OK, SyncError
from oplog_sync.settings import JobSettings, command
from oplogd.errors import OplogError


class _Leaving:
    """Handle signals, unless ignored: end the run and remove the spooled standard input."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before = {number: signal.getsignal(number) for number in ending_signals()}
        self._stderr = sys.stderr

    def install(self) -> None:
        for number in self._before:
            signal.signal(number, self._leave)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.stderr = self._stderr

    def _leave(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # the second one ends the process at once
        self.signal = signal.Signals(number)
        _fail(f"stopped by {self.signal.name}; run it again for the rest")
        sys.stderr = io.StringIO()  # threads of Spark now report the loss of Java at length
        if (session := sys.modules.get("oplog_sync.session")) is not None:
            session.end_java()  # otherwise Spark would finish the emission first
        raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> None:
    oplog_sync = command()
    oplog_sync.complete(os.environ)
    settings = oplog_sync.parse(sys.argv[1:] if argv is None else argv, os.environ)
    leaving = _Leaving()
    leaving.install()
    code = EXIT_FAILED
    try:
        code = _run(settings, leaving)
    except BaseException:
        if leaving.signal is None:  # otherwise the error is of an interrupted call to Java
            raise
    finally:
        leaving.restore()
        if leaving.signal is None and (session := sys.modules.get("oplog_sync.session")):
            session.finish()
    sys.exit(code if leaving.signal is None else 128 + leaving.signal)


def _run(settings: JobSettings, leaving: _Leaving) -> int:
    try:
        # Imported late: --help and a wrong flag need no Spark.
        from oplog_sync import session
        from oplog_sync.comparison.warm import warming_up
        from oplog_sync.dump.local import is_small, refuse_missing
        from oplog_sync.failure import translating
        from oplog_sync.job import find_store, run
    except ImportError as error:
        return _fail(f"{error.name} is missing; {how_to_install('sync')}")

    if not settings.debug:
        _quieten()
    try:
        # Before Spark starts, which takes seconds.
        find_store(settings)
        refuse_missing(settings.arguments, os.environ)
        with translating():
            spark = session.start(settings.master, settings.debug, is_small(settings.arguments))
        leaving.install()  # Spark has taken SIGINT
        try:
            with warming_up(spark):
                counts = run(spark, settings)
        finally:
            with suppress(Exception):  # Java may be gone
                session.stop(spark)
    except (OplogError, OSError) as error:
        if settings.debug:
            traceback.print_exc()
        code = error.exit_code if isinstance(error, SyncError) else EXIT_FAILED
        return _fail(str(error), code)
    print(counts.table(), flush=True)
    return EXIT_OK


def _quieten() -> None:
    """Keep PySpark and Py4J from logging errors. They raise them, too."""
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _fail(message: str, code: int = EXIT_FAILED) -> int:
    print(f"oplog-sync: {message}", file=sys.stderr)
    return code
