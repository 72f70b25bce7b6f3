"""The session of a pipe on Spark: one of its own, or that of spark-submit."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pyspark.sql import SparkSession

import oplog_sync
from oplog_kit.signals import ending_signals
from oplog_kit.wording import counted
from oplog_pipe.errors import ConfigError, PipeError
from oplog_pipe.model.exits import EXIT_OK, PROGRAM
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.spark.modules import user_files
from oplog_sync.errors import SyncError
from oplog_sync.failure import SPARK_ERRORS, reason, silence_connection, silence_queries
from oplog_sync.jvm import JAVA
from oplog_sync.session import start, stop

# Spark searches the long text of an interrupted batch by a pattern, which needs a large stack.
_JAVA = ("-Xss16m",)
_SPECULATION = "spark.speculation"


@contextmanager
def session(settings: PipeSettings, master: str | None, *, debug: bool) -> Iterator[SparkSession]:
    """Yield a session whose tasks find the modules of users, and stop it at the end.

    ``master`` None: the one of spark-submit, else all cores of this machine. Raises PipeError.
    """
    folder = Path(tempfile.mkdtemp(prefix="oplog-pipe-"))
    silence_queries()
    for number in ending_signals():  # until the pipe handles them
        signal.signal(number, _leave)
    try:
        files = user_files(settings.sinks, settings.root, folder)
        if not debug:
            silence_connection()
        try:
            with sentences():
                spark = start(master, debug, name=PROGRAM, java=_JAVA)
        except KeyboardInterrupt:  # Spark has taken SIGINT
            _leave(signal.SIGINT, None)
        signal.signal(signal.SIGINT, _leave)  # Spark has taken it
        try:
            if spark.conf.get(_SPECULATION, "false") == "true":
                raise ConfigError(
                    f"{_SPECULATION}: must be false: two attempts of a task would write at once"
                )
            oplog_sync.register(spark)
            for file in files:
                spark.sparkContext.addPyFile(str(file))
            yield spark
        finally:
            with suppress(Exception):  # Java may be gone
                stop(spark)
            JAVA.finish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End before the pipe runs: a signal interrupts the start of Java."""
    for each in ending_signals():
        signal.signal(each, signal.SIG_IGN)
    JAVA.end()
    raise SystemExit(EXIT_OK)


def stage_attempts(spark: SparkSession, stage: int) -> int:
    """Return how often a stage has begun again."""
    found = spark.sparkContext.statusTracker().getStageInfo(stage)
    return 0 if found is None else int(found.currentAttemptId)


def batch_progress(spark: SparkSession, run: str) -> str | None:
    """Return what the running batch of a query has done. None: it has just begun, or ended.

    ``run``: id of the run of the query.
    """
    tracker = spark.sparkContext.statusTracker()
    active = set(tracker.getActiveStageIds())
    for job in set(tracker.getJobIdsForGroup(run)) & set(tracker.getActiveJobsIds()):
        info = tracker.getJobInfo(job)
        stages = [] if info is None else sorted(info.stageIds)
        for place, stage in enumerate(stages, 1):
            found = tracker.getStageInfo(stage) if stage in active else None
            if found is not None:
                tasks = f"{found.numCompletedTasks} of {counted(found.numTasks, 'task')}"
                return f"stage {place} of {len(stages)}, {tasks} done"
    return None


@contextmanager
def sentences() -> Iterator[None]:
    """Raise PipeError for an error of Spark or Java."""
    try:
        yield
    except SyncError as error:
        raise PipeError(str(error)) from None
    except (*SPARK_ERRORS, ConnectionError) as error:
        raise PipeError(reason(error)) from error
