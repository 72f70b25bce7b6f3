"""Restarts: backlogs one message at a time, before any source is read."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from oplog_pipe.commitlog import OffsetLog
from oplog_pipe.errors import GapError, LogError, SinkError, SourceError
from oplog_pipe.model.exits import EXIT_FAILED, EXIT_GAP, EXIT_OK, EXIT_SINK
from oplog_pipe.model.settings import BatchLimits
from tests.unit.pipe.engine.engine import (
    CREATED,
    LONG,
    Folder,
    Gate,
    RecordingSink,
    change,
    control,
    refuse,
    sink,
)

CREATED_VERSION = CREATED << 20
SIXTEEN = [change(id=str(number)) for number in range(16)]


async def test_each_sink_takes_its_backlog_one_at_a_time_before_the_source_is_read(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path, sink("c0"), sink("c1"))
    folder.fill(*SIXTEEN)
    folder.acknowledge(c0=12, c1=13)
    last = Gate(15)
    c0, c1 = RecordingSink("c0"), RecordingSink("c1", last)
    async with folder.start(c0, c1, brings=[change(), change()]) as running:
        await last.wait()
        assert {each.phase for each in running.pipe.status().sinks} <= {"recovery", "bulk"}
        assert "source" not in folder.events
        last.open.set()
        await running.sources_or_end()
    assert c0.writes == [[13], [14], [15], [16, 17]]
    assert c1.writes == [[14], [15], [16, 17]]
    source = folder.events.index("source")
    assert folder.events.index(("c1", [15])) < source
    assert folder.events.index(("c0", [15])) < source
    assert (running.code, folder.flushed()) == (EXIT_OK, {"c0": 17, "c1": 17})


async def test_a_refused_batch_stops_the_pipe_until_somebody_acknowledges_the_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, sink("c0", batch=BatchLimits(messages=9, time=0.0)))
    folder.fill(*SIXTEEN)
    refused = refuse(14, SinkError("no such field"))

    first = RecordingSink("c0", refused)
    assert await folder.run(first) == EXIT_SINK
    assert (first.writes, folder.flushed()) == ([[*range(9)]], {"c0": 8})
    assert "sink 'c0' stops the pipe: no such field; its offset is 8" in caplog.text

    folder.events.clear()
    second = RecordingSink("c0", refused)
    assert await folder.run(second) == EXIT_SINK
    assert (second.writes, folder.flushed()) == ([[9], [10], [11], [12], [13]], {"c0": 13})
    assert "source" not in folder.events

    folder.acknowledge(c0=14)
    third = RecordingSink("c0", refused)
    assert await folder.run(third, brings=[change(), change()]) == EXIT_OK
    assert (third.writes, folder.flushed()) == ([[15], [16, 17]], {"c0": 17})


async def test_the_source_is_not_read_if_a_backlog_fails_and_the_other_sinks_go_on(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path, sink("c0"), sink("c1"))
    folder.fill(*SIXTEEN)
    folder.acknowledge(c0=12, c1=2)
    c0 = RecordingSink("c0", refuse(13, ValueError("bad")))
    c1 = RecordingSink("c1")
    assert await folder.run(c0, c1) == EXIT_SINK
    assert "source" not in folder.events
    assert (c0.offsets, c1.writes) == ([], [[number] for number in range(3, 16)])
    assert folder.flushed() == {"c0": 12, "c1": 15}


async def test_a_new_sink_takes_batches_and_does_not_delay_the_source(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0"), sink("new"))
    folder.fill(*SIXTEEN)
    folder.acknowledge(c0=15)
    first = Gate(0)
    new = RecordingSink("new", first)
    async with folder.start(RecordingSink("c0"), new) as running:
        await running.sources_or_end()
        await first.wait()
        first.open.set()
    assert new.writes == [[*range(16)]]
    assert folder.flushed() == {"c0": 15, "new": 15}


async def test_a_sink_killed_before_its_first_flush_is_not_new_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0"))
    folder.fill(*SIXTEEN[:3])
    assert await folder.run(RecordingSink("c0", refuse(0, SinkError("no")))) == EXIT_SINK
    assert folder.flushed() == {"c0": -1}
    again = RecordingSink("c0")
    assert await folder.run(again) == EXIT_OK
    assert again.writes == [[0], [1], [2]]


async def test_one_at_a_time_never_writes_batches(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0"))
    folder.fill(*SIXTEEN[:2])
    c0 = RecordingSink()
    assert await folder.run(c0, one_at_a_time=True, brings=[change(), change()]) == EXIT_OK
    assert c0.writes == [[0], [1], [2], [3]]


async def test_a_sink_that_filters_all_reaches_the_end_with_the_offsets_of_all_namespaces(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path, sink("c0", namespace="^nothing$"), sink("c1", namespace="^nothing$"))
    folder.fill(change("video"), change("user"), change("video"))
    folder.acknowledge(c1=0)
    c0, c1 = RecordingSink("c0"), RecordingSink("c1")
    async with folder.start(c0, c1, brings=[change("user")]) as running:
        await running.sources_or_end()
    assert running.code == EXIT_OK
    assert (c0.writes, c1.writes) == ([], [])
    for name in ("c0", "c1"):
        offsets = OffsetLog.view(folder.path, name).offsets
        assert {key: offsets[key] for key in ("video", "user")} == {"video": 2, "user": 3}
    status = {each.name: each for each in running.pipe.status().sinks}
    assert (status["c0"].filtered, status["c0"].lag, status["c0"].phase) == (4, 0, "stopped")


async def test_a_copy_ends_the_batch_and_has_the_version_of_its_reset(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0", namespace="^video$"), sink("old"))
    folder.fill(
        change(), control("reset"), change(), change("user"), change(), control("live", 1),
        change(), control("live"), change(),
    )  # fmt: skip
    folder.acknowledge(old=3)
    c0, old = RecordingSink("c0"), RecordingSink("old")
    assert await folder.run(c0, old) == EXIT_OK
    generation = CREATED_VERSION + 1
    assert c0.calls[1:-1] == [
        [0], ("begin", generation, "oplog"), [2, 4], ("end", generation, "oplog"), [6], [8],
    ]  # fmt: skip
    assert old.calls[1:-1] == [[4], ("end", generation, "oplog"), [6], [8]]
    assert [message.version for message in c0.messages] == [
        CREATED_VERSION + offset for offset in (0, 2, 4, 6, 8)
    ]
    assert folder.flushed() == {"c0": 8, "old": 8}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SourceError("source: 401"), EXIT_FAILED),
        (GapError("messages are gone"), EXIT_GAP),
        (LogError("the disk is full"), EXIT_FAILED),
    ],
)
async def test_a_source_that_fails_lets_the_sinks_drain(
    tmp_path: Path, error: Exception, code: int
) -> None:
    folder = Folder(tmp_path, sink("c0", batch=BatchLimits(time=LONG)))
    c0 = RecordingSink()
    assert await folder.run(c0, brings=[change(), change()], error=error) == code
    assert (c0.offsets, folder.flushed()) == ([0, 1], {"c0": 1})


class CopiedSink(RecordingSink):
    """A sink that tells its target when a copy is not whole."""

    def abandon_copy(self, generation: int, source: str) -> None:
        self.calls.append(("abandon", generation, source))


async def test_a_dead_letter_in_a_copy_keeps_its_end_from_removing_anything_until_the_next_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, sink("c0", dead_letter="dead.jsonl"), sink("other"))
    copy = [control("reset"), change(), change(), control("live", 0)]
    refuses = refuse(2, SinkError("no", index=0))
    c0, other = CopiedSink("c0", refuses), CopiedSink("other")
    folder.fill(*copy)
    assert await folder.run(c0, other) == EXIT_OK
    assert c0.calls[-2] == ("abandon", CREATED_VERSION, "oplog")
    assert other.calls[-2] == ("end", CREATED_VERSION, "oplog")
    assert "sink 'c0': copy not whole" in caplog.text
    assert "run `oplog-pipe copy oplog`" in caplog.text
    again = [control("reset"), change(), control("live", 4)]
    c0, other = CopiedSink("c0", refuses), CopiedSink("other")
    async with folder.start(c0, other, brings=again) as running:
        assert [each.not_whole for each in running.pipe.status().sinks] in ([], [["oplog"], []])
        await running.sources_or_end()
    assert [each.calls[-2][:1] for each in (c0, other)] == [("end",), ("end",)]
    assert [each.not_whole for each in running.pipe.status().sinks] == [[], []]


@pytest.mark.parametrize("start", ["end", None])
async def test_a_sink_that_begins_within_a_copy_does_not_end_it(
    tmp_path: Path, start: Literal["end"] | None
) -> None:
    folder = Folder(tmp_path, sink("old"))
    folder.fill(control("reset"), change())
    assert await folder.run(RecordingSink("old")) == EXIT_OK
    folder.settings = replace(folder.settings, sinks=(sink("old"), sink("new", start=start)))
    old, new = CopiedSink("old"), CopiedSink("new")
    assert await folder.run(old, new, brings=[change(), control("live", 0)]) == EXIT_OK
    generation = CREATED_VERSION
    ended = ("abandon" if start == "end" else "end", generation, "oplog")
    assert (old.calls[-2], new.calls[-2]) == (("end", generation, "oplog"), ended)
    assert OffsetLog.view(folder.path, "new").not_whole == (["oplog"] if start == "end" else [])
