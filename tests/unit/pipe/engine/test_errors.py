"""Failures of sinks and steps: retries and dead letters."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.commitlog import CommitLog
from oplog_pipe.deliver.retry import LeftError, Retry, RetryClock
from oplog_pipe.errors import ConfigError, SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.exits import EXIT_OK, EXIT_SINK, EXIT_USAGE
from oplog_pipe.model.settings import BatchLimits, FunctionStep
from oplog_pipe.sinks.parts.ownership import Owner
from tests.unit.pipe.engine.engine import Folder, RecordingSink, change, control, refuse, sink


class Script:
    """Time that only pauses move. ``pauses``: their seconds."""

    def __init__(self) -> None:
        self.time = 100.0
        self.pauses: list[float] = []

    def clock(self) -> RetryClock:
        return RetryClock(lambda: self.time, self._pause, lambda: 0.0)

    def _pause(self, event: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.time += seconds
        return event.is_set()


def away() -> SinkError:
    return SinkError("the server is unreachable", transient=True)


def test_pauses_double_up_to_ten_seconds_until_retry_for_is_over() -> None:
    script = Script()
    retry = Retry("c0", 30.0, threading.Event(), script.clock())
    calls = []

    def call() -> None:
        calls.append(script.time)
        raise away()

    with pytest.raises(SinkError) as caught:
        retry(call)
    assert caught.value.transient
    assert script.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 7.3])
    assert calls[-1] == pytest.approx(130.0)
    assert (retry.retries, retry.error) == (9, "the server is unreachable")
    retry(lambda: None)
    assert retry.error is None


def test_jitter_shortens_a_pause_by_half_at_most() -> None:
    script = Script()
    clock = RetryClock(script.clock().now, script.clock().pause, lambda: 1.0)
    retry = Retry("c0", 0.2, threading.Event(), clock)
    with pytest.raises(SinkError):
        retry(lambda: refuse(0, away())([0]))
    assert script.pauses == pytest.approx([0.05, 0.1, 0.05])


def test_a_stop_request_ends_the_retries_after_one_more_attempt() -> None:
    script, leaving, calls = Script(), threading.Event(), []

    def call() -> None:
        calls.append(leaving.is_set())
        if len(calls) == 3:
            leaving.set()
        raise away()

    with pytest.raises(LeftError, match="the server is unreachable"):
        Retry("c0", 60.0, leaving, script.clock())(call)
    assert calls == [False, False, False, True]


async def test_a_transient_failure_is_tried_again_with_the_same_messages(tmp_path: Path) -> None:
    script = Script()
    attempts: list[list[int]] = []

    def fails_twice(offsets: list[int]) -> None:
        attempts.append(offsets)
        if len(attempts) <= 2:
            raise away()

    folder = Folder(tmp_path, sink("c0"))
    folder.fill(change(), change())
    folder.acknowledge(c0=-1)
    async with folder.start(RecordingSink("c0", fails_twice), clock=script.clock()) as running:
        await running.sources_or_end()
    assert attempts == [[0], [0], [0], [1]]
    (status,) = running.pipe.status().sinks
    assert (status.retries, status.error, status.written) == (2, None, 2)


async def test_a_transient_failure_counts_as_permanent_after_retry_for_also_with_dead_letters(
    tmp_path: Path,
) -> None:
    script = Script()
    folder = Folder(tmp_path, sink("c0", retry_for=1.0, dead_letter="dead.jsonl"))
    c0 = RecordingSink("c0", refuse(1, away()))
    folder.fill(change(), change())
    folder.acknowledge(c0=-1)
    assert await folder.run(c0, clock=script.clock()) == EXIT_SINK
    assert script.pauses == pytest.approx([0.1, 0.2, 0.4, 0.3])
    assert (c0.writes, folder.flushed()) == ([[0]], {"c0": 0})
    assert not (tmp_path / "dead.jsonl").exists()


def dead(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "dead.jsonl").read_text().splitlines()]


async def test_refused_messages_of_a_batch_become_dead_letters_and_the_others_are_written(
    tmp_path: Path,
) -> None:
    folder = Folder(
        tmp_path, sink("c0", dead_letter="dead.jsonl", batch=BatchLimits(messages=6, time=0.0))
    )
    folder.fill(*(change(id=str(number), data=b'{"n": %d}' % number) for number in range(9)))
    c0 = RecordingSink("c0", refuse(4, SinkError("n is too large")))
    assert await folder.run(c0) == EXIT_OK
    assert c0.writes == [[0], [1], [2], [3], [5], [6, 7, 8]]
    assert dead(tmp_path) == [
        {
            "offset": 4,
            "op": "update",
            "timestamp": 5,
            "namespace": "video",
            "id": "4",
            "data": {"n": 4},
            "error": "n is too large",
        }
    ]
    assert folder.flushed() == {"c0": 8}


async def test_a_target_that_refuses_everything_makes_no_dead_letters(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0", dead_letter="dead.jsonl"))
    folder.fill(*(change(id=str(number)) for number in range(3)))
    c0 = RecordingSink("c0", refuse(1, TargetError("wrong password")))
    assert await folder.run(c0) == EXIT_SINK
    assert not (tmp_path / "dead.jsonl").exists()
    assert await folder.run(c0) == EXIT_SINK
    assert not (tmp_path / "dead.jsonl").exists()
    assert folder.flushed() == {"c0": 0}


@pytest.mark.parametrize("acknowledged", [None, -1])
async def test_the_end_of_a_copy_that_is_refused_stops_the_pipe_also_with_dead_letters(
    acknowledged: int | None, tmp_path: Path
) -> None:
    class Keeps(RecordingSink):
        def end_copy(self, generation: int, source: str) -> None:
            self.calls.append("end")
            # A second attempt ends the worker in another way: a defect must not hang the test.
            raise SinkError("may not delete") if self.calls.count("end") == 1 else SystemExit

    folder = Folder(tmp_path, sink("c0", dead_letter="dead.jsonl"))
    folder.fill(control("reset"), change(), control("live", copy=0), change())
    if acknowledged is not None:  # then the backlog is written one message at a time
        folder.acknowledge(c0=acknowledged)
    c0 = Keeps()
    assert await folder.run(c0) == EXIT_SINK
    assert c0.writes == [[1]]
    assert folder.flushed() == {"c0": 1}
    assert not (tmp_path / "dead.jsonl").exists()


async def test_a_dead_letter_follows_a_line_that_a_crash_has_torn(tmp_path: Path) -> None:
    (tmp_path / "dead.jsonl").write_bytes(b'{"offset":')
    folder = Folder(tmp_path, sink("c0", dead_letter="dead.jsonl"))
    folder.fill(change(), change())
    assert await folder.run(RecordingSink("c0", refuse(0, SinkError("no")))) == EXIT_OK
    torn, line = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert (torn, json.loads(line)["offset"]) == ('{"offset":', 0)


async def test_a_dead_letter_has_the_message_from_before_the_steps(tmp_path: Path) -> None:
    (tmp_path / "engine_steps.py").write_text(
        "def fail(message):\n"
        "    message.data['n'] += 1\n"
        "    if message.data['n'] == 2:\n"
        "        raise ValueError('two')\n"
        "    return message\n"
    )
    steps = (FunctionStep("engine_steps:fail"),)
    folder = Folder(tmp_path, sink("c0", dead_letter="dead.jsonl", transforms=steps))
    folder.fill(*(change(data=b'{"n": %d}' % number) for number in range(3)))
    c0 = RecordingSink()
    assert await folder.run(c0) == EXIT_OK
    # Steps begin with fresh messages when the batch is taken apart.
    assert [message.data["n"] for message in c0.messages] == [1, 3]
    (line,) = dead(tmp_path)
    assert line["data"] == {"n": 1}
    assert line["error"] == (
        "transform engine_steps:fail: video 1, offset 1: ValueError in engine_steps.py, line 4"
    )
    assert folder.flushed() == {"c0": 2}


@pytest.mark.parametrize("namespace", [".*", "^video$"])
async def test_a_step_that_fails_without_dead_letters_stops_the_pipe(
    tmp_path: Path, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = (FunctionStep("operator:neg", namespace),)
    folder = Folder(tmp_path, sink("c0", transforms=steps))
    folder.fill(change("user" if namespace == "^video$" else "video"), change("video"))
    assert await folder.run(c0 := RecordingSink()) == EXIT_SINK
    assert c0.writes == []
    assert "transform operator:neg: video 1, offset" in caplog.text


class Target(RecordingSink):
    """A sink whose target holds a version."""

    newest: int | None = None

    def own(self, owner: Owner) -> None:
        self.owner = owner

    def adopt(self, former: str) -> int:
        raise NotImplementedError

    def write(self, messages: Sequence[Message]) -> None:
        self.owner.check("the target", self.newest)
        super().write(messages)


async def test_a_target_of_a_newer_folder_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, sink("c0"))
    for above, code in ((None, EXIT_OK), (0, EXIT_OK), (1, EXIT_USAGE)):
        folder.fill(change())
        log = CommitLog.view(folder.path)
        own = (log.created << 20) + log.end - 1
        c0 = Target()
        c0.newest = None if above is None else own + above
        assert await folder.run(c0) == code
    assert f"sink 'c0': the target has a row of version {own + 1}," in caplog.text
    assert c0.calls == ["open", "close"]


async def test_a_sink_that_cannot_be_opened_stops_the_pipe(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Closed(RecordingSink):
        def open(self) -> None:
            raise ConfigError("sinks[0].path: is a folder")

    folder = Folder(tmp_path, sink("c0"))
    assert await folder.run(Closed()) == EXIT_USAGE
    assert "sinks[0].path: is a folder" in caplog.text


async def test_a_sink_that_exits_the_program_fails_like_one_that_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def before(offsets: list[int]) -> None:
        if 1 in offsets:
            raise SystemExit(0)

    folder = Folder(tmp_path, sink("c0"), sink("c1", dead_letter="dead.jsonl"))
    folder.fill(*(change(id=str(number)) for number in range(3)))
    c0, c1 = RecordingSink("c0", before), RecordingSink("c1", before)
    assert await folder.run(c0, c1) == EXIT_SINK
    assert folder.flushed() == {"c0": -1, "c1": 2}
    assert "sink 'c0' stops the pipe: SystemExit in engine.py, line " in caplog.text
    assert [line["offset"] for line in dead(tmp_path)] == [1]
