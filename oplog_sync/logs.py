"""Loggers of PySpark and Py4J that repeat what they raise as errors, too."""

import logging

from pyspark.logger import PySparkLogger

_OFF = logging.CRITICAL + 1
# Of PySpark.
QUOTING = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def silence_queries() -> None:
    """Let PySpark log no errors of queries: they quote values of rows."""
    for name in QUOTING:
        # As PySpark makes them: an ordinary logger of that name would refuse its fields.
        PySparkLogger.getLogger(name).setLevel(_OFF)


def silence_connection() -> None:
    """Let Py4J log no errors of its connection to Java."""
    logging.getLogger("py4j").setLevel(_OFF)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname
