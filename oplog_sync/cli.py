"""The command ``oplog-sync``. ``oplog_sync/__main__.py`` is the same for spark-submit."""

import io
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
        # Only Java is still busy: a signal ends it, and nothing is lost.
        self.is_over = False
        self._before = {number: signal.getsignal(number) for number in ending_signals()}
        self._stderr = sys.stderr

    def install(self) -> None:
        for number in self._before:
            signal.signal(number, self.leave)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.stderr = self._stderr

    def leave(self, number: int, frame: FrameType | None = None) -> None:
        signal.signal(number, signal.SIG_DFL)  # the second one ends the process at once
        self.signal = signal.Signals(number)
        if self.is_over:
            sys.modules["oplog_sync.jvm"].JAVA.kill()
            return
        _fail(f"stopped by {self.signal.name}; run it again for the rest")
        sys.stderr = io.StringIO()  # threads of Spark now report the loss of Java at length
        if (jvm := sys.modules.get("oplog_sync.jvm")) is not None:
            jvm.JAVA.end()  # otherwise Spark would finish the emission first
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
        if leaving.signal is None and (jvm := sys.modules.get("oplog_sync.jvm")):
            leaving.is_over = True
            jvm.JAVA.finish()
        leaving.restore()
    if leaving.signal is not None and not leaving.is_over:
        code = 128 + leaving.signal
    sys.exit(code)


def _run(settings: JobSettings, leaving: _Leaving) -> int:
    try:
        # Imported late: --help and a wrong flag need no Spark.
        from oplog_sync import session
        from oplog_sync.comparison.warm import warming_up
        from oplog_sync.dump.local import is_small, refuse_missing
        from oplog_sync.failure import silence_connection, silence_queries, translating
        from oplog_sync.job import find_store, run
    except ImportError as error:
        return _fail(f"{error.name} is missing; {how_to_install('sync')}")

    if not settings.debug:
        silence_queries()
        silence_connection()
    try:
        # Before Spark starts, which takes seconds.
        find_store(settings)
        refuse_missing(settings.arguments, os.environ)
        try:
            with translating():
                spark = session.start(settings.master, settings.debug, is_small(settings.arguments))
        except KeyboardInterrupt:  # Spark has taken SIGINT while it started
            leaving.leave(signal.SIGINT)
            raise
        leaving.install()
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
    return _show(counts.table())


def _show(table: str) -> int:
    try:
        print(table, flush=True)
    except OSError as error:
        # Otherwise Python would fail at exit because it cannot flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # the reader has seen enough
            return _fail(f"the job is done, but its result cannot be printed: {error}")
    return EXIT_OK


def _fail(message: str, code: int = EXIT_FAILED) -> int:
    print(f"oplog-sync: {message}", file=sys.stderr)
    return code
