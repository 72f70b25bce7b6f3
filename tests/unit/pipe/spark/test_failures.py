"""What a failed batch says, without Spark."""

from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException

from oplog_pipe.errors import BrokenBatchError, GapError
from oplog_pipe.spark.failures import failed

GONE = "oplog_sync.errors.MessagesGoneError: position 7 has left the topic shop/orders; do"
QUOTING = [
    "SparkNumberFormatException: [CAST_INVALID_INPUT] The value '[SECRET] s' cannot be cast",
    "[CAST_INVALID_INPUT] The value 'x MessagesGoneError: the secret' cannot be cast",
    "[CAST_INVALID_INPUT] The value 'PATH_NOT_FOUND] Path does not exist: /secret. z' cannot",
    "[CAST_INVALID_INPUT] The value 'RuntimeException: file:/secret x CRC failure' cannot",
    f"[CAST_INVALID_INPUT] The value 'secret\n{GONE}' cannot be cast",
]


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know some conditions."""

    class Helper:
        @staticmethod
        def isValidErrorClass(name: str) -> bool:
            return name in ("CAST_INVALID_INPUT", "STREAM_FAILED", "PYTHON_DATA_SOURCE_ERROR")

    classes = {"org.apache.spark.SparkThrowableHelper": Helper}
    monkeypatch.setattr(SparkContext, "_jvm", SimpleNamespace(**classes))


@pytest.mark.parametrize("text", QUOTING)
def test_an_error_that_quotes_rows_gives_the_condition_only(text: str) -> None:
    error = failed(PySparkException(text), quotes=True)
    assert type(error) is BrokenBatchError
    assert str(error) == (
        "Spark did not bring a batch to its end: CAST_INVALID_INPUT (--debug shows more)"
    )


def test_an_error_without_a_known_condition_gives_its_class_only() -> None:
    error = failed(PySparkException("For input string: [SECRET] CRC failure"), quotes=True)
    assert str(error).endswith("its end: PySparkException (--debug shows more)")


@pytest.mark.parametrize("quotes", [True, False])
def test_a_gap_is_told_beside_a_query_too(quotes: bool) -> None:
    text = f"[STREAM_FAILED] Query [id = 1]\n[PYTHON_DATA_SOURCE_ERROR]\n  {GONE}\n"
    error = failed(PySparkException(text), quotes=quotes)
    assert type(error) is GapError
    assert str(error) == (
        "position 7 has left the topic shop/orders; set on_gap: continue to go on with the oldest"
        " message"
    )


@pytest.mark.parametrize("quotes", [True, False])
def test_a_source_says_why_it_failed(quotes: bool) -> None:
    text = "[STREAM_FAILED] Query\noplog_sync.errors.SyncError: no agent answers"
    error = failed(PySparkException(text), quotes=quotes)
    assert (type(error), str(error)) == (BrokenBatchError, "no agent answers")


def test_without_a_query_known_causes_are_told() -> None:
    error = failed(PySparkException("java.io.IOException: No space left on device"), quotes=False)
    assert "a disk is full" in str(error)
