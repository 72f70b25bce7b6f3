"""What errors of Spark say of a batch. Those of a query in SQL may quote rows: no word of them."""

import re

from pyspark import SparkContext

from oplog_pipe.errors import BrokenBatchError, GapError, PipeError
from oplog_sync.errors import MessagesGoneError
from oplog_sync.failure import SPARK_ERRORS, own_reason, reason
from oplog_sync.jvm import java_class

# The end of a sentence with words of Spark.
MORE = " (--debug shows more)"
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
# In a trace of Spark.
_GONE = re.compile(rf"^\s*[\w.]*\b{MessagesGoneError.__name__}: ", re.MULTILINE)
# Conditions of errors that a source has raised in Python.
_OF_SOURCES = ("PYTHON_", "STREAM_")


def failed(error: BaseException, *, quotes: bool) -> PipeError:
    """Return why Spark did not bring a batch to its end. ``quotes``: the error may quote rows."""
    conditions = _CONDITION.findall(str(error))
    if quotes:
        # A row may have what looks like one.
        conditions = [each for each in conditions if _is_condition(each)]
        is_ours = all(each.startswith(_OF_SOURCES) for each in conditions)
        said = own_reason(error) if is_ours else None
    else:
        said = reason(error)
        said = None if said.endswith(MORE) else said
    if said is not None:
        if _GONE.search(str(error)):
            what = said.split("; ")[0]
            return GapError(f"{what}; set on_gap: continue to go on with the oldest message")
        return BrokenBatchError(said)
    name = conditions[-1] if conditions else type(error).__name__
    return BrokenBatchError(f"Spark did not bring a batch to its end: {name}{MORE}")


def _is_condition(name: str) -> bool:
    """Return whether Spark has an error condition of this name. False: Java is gone."""
    if SparkContext._jvm is None:
        return False
    try:
        return bool(java_class("org.apache.spark.SparkThrowableHelper").isValidErrorClass(name))
    except (*SPARK_ERRORS, OSError):
        return False
