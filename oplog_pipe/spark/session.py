"""The session of a pipe on Spark: one of its own, or that of spark-submit."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

import oplog_sync
from oplog_pipe.errors import ConfigError, PipeError
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.spark.modules import user_files
from oplog_sync.errors import SyncError
from oplog_sync.failure import SPARK_ERRORS, reason
from oplog_sync.jvm import JAVA
from oplog_sync.session import start, stop

_SPECULATION = "spark.speculation"


@contextmanager
def session(settings: PipeSettings, master: str | None, *, debug: bool) -> Iterator[SparkSession]:
    """Yield a session whose tasks find the modules of users, and stop it at the end.

    ``master`` None: the one of spark-submit, else all cores of this machine. Raises PipeError.
    """
    folder = Path(tempfile.mkdtemp(prefix="oplog-pipe-"))
    try:
        files = user_files(settings.sinks, settings.root, folder)
        if not debug:
            # Errors of a query come as errors, too.
            logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        with sentences():
            spark = start(master, debug, name=PROGRAM)
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


def stage_attempts(spark: SparkSession, stage: int) -> int:
    """Return how often a stage has begun again."""
    found = spark.sparkContext.statusTracker().getStageInfo(stage)
    return 0 if found is None else int(found.currentAttemptId)


@contextmanager
def sentences() -> Iterator[None]:
    """Raise PipeError for an error of Spark or Java."""
    try:
        yield
    except SyncError as error:
        raise PipeError(str(error)) from None
    except (*SPARK_ERRORS, ConnectionError) as error:
        raise PipeError(reason(error)) from error
