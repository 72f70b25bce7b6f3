"""The session of a pipe on Spark, without Spark."""

import logging
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger

from oplog_pipe.config import load
from oplog_pipe.errors import PipeError
from oplog_pipe.spark import session as module
from oplog_sync.errors import SyncError
from oplog_sync.failure import QUOTING


@pytest.mark.parametrize("debug", [True, False])
def test_values_of_rows_are_never_logged(
    debug: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loggers = [PySparkLogger.getLogger(name) for name in QUOTING]
    seen: list[bool] = []

    def start(*_: object, **__: object) -> None:
        seen.extend(each.isEnabledFor(logging.CRITICAL) for each in loggers)
        raise SyncError("no Java")

    monkeypatch.setattr(module, "start", start)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for each in loggers:
        monkeypatch.setattr(each, "level", logging.NOTSET)
        each.setLevel(logging.WARNING)
    root = logging.getLogger()
    monkeypatch.setattr(root, "filters", [*root.filters])
    py4j = logging.getLogger("py4j")
    monkeypatch.setattr(py4j, "level", py4j.level)
    file = tmp_path / "pipe.yaml"
    file.write_text(
        "{name: p, dir: d, sources: [{agents: ['http://a:1']}],"
        " sinks: [{name: h, format: parquet, path: t}]}"
    )
    with pytest.raises(PipeError), module.session(load(file), None, debug=debug):
        pass
    assert seen == [False, False]
