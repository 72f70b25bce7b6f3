"""What is noted beside a checkpoint, and what its offsets say."""

from typing import Any

import pytest

from oplog_pipe.message import version_of
from oplog_pipe.spark import noted as module
from oplog_pipe.spark.noted import Checkpoint, NotedSettings

CREATED = 1_790_000_000_000
BASE = version_of(CREATED - 10, 0)
# 4 s.
AHEAD = 4096 << 20


def topic_offset(ms: int) -> str:
    return f'{{"id":"{ms:016x}0007ffffffffffffffff0001","offset":9,"ms":{ms}}}'


@pytest.mark.parametrize(
    ("lines", "newest"),
    [
        ([f'{{"id":"5","offset":5,"ms":1,"base":{BASE}}}'], version_of(CREATED, 0)),
        ([f'{{"id":"5","offset":5,"ms":1,"base":{BASE << 1},"copy":true}}'], (BASE << 1) + 5),
        (["-", f'{{"id":"5","offset":7,"ms":1,"base":{BASE << 1}}}'], (BASE << 1) + 7),
        ([topic_offset(CREATED + 8), "-"], version_of(CREATED, 8)),
        ([topic_offset(CREATED - 8), '{"id":"0","offset":0,"ms":0}'], version_of(CREATED, 0)),
    ],
)
def test_the_newest_version_of_a_batch_is_that_of_any_source(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], newest: int
) -> None:
    class Files:
        def __init__(self, *_: object) -> None: ...

        def read(self, path: str) -> str:
            assert path == "checkpoint/offsets/3"
            return "\n".join(["v1", '{"batchWatermarkMs":0}', *lines])

    monkeypatch.setattr(module, "Folders", Files)
    spark: Any = None
    found = NotedSettings(spark, "checkpoint").newest(Checkpoint(1, CREATED), 3)
    assert found == newest + AHEAD
