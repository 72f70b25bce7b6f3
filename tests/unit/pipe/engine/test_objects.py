"""Patience with messages whose objects cannot be fetched."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from oplog_pipe.commitlog import CommitLog
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.patience import Patience
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.errors import TransformError
from oplog_pipe.message import Message
from oplog_pipe.model.settings import BatchLimits
from tests.kits.clock.waiting import attempts
from tests.unit.pipe.engine.engine import DEADLINE, RecordingSink, change, sink

COUNT = 40


class Time:
    """Time that pauses move."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = RetryClock(lambda: self.seconds, self._pause, lambda: 0.0)

    def _pause(self, event: threading.Event, seconds: float) -> bool:
        self.seconds += seconds
        return event.is_set()


class Objects:
    """A step that fetches. ``fails``: whether the server fails for an offset at a time."""

    def __init__(self, fails: Callable[[int, float], bool], time: Time) -> None:
        self._fails = fails
        self._time = time
        self.asked: list[int] = []

    def __call__(self, messages: Sequence[Message]) -> list[Message | None]:
        found: list[Message | None] = []
        for each in messages:
            self.asked.append(each.offset)
            if self._fails(each.offset, self._time.seconds):
                if found:
                    break
                error = TransformError("HTTP 500", transient=True, index=0)
                error.of_object = True
                raise error
            found.append(each)
        return found

    def close(self) -> None: ...


class Letters(DeadLetters):
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def add(self, message: Message, reason: str) -> None:
        self.offsets.append(message.offset)


class Run:
    """A worker at its end. ``at``: time of each write, by offset."""

    def __init__(
        self, path: Path, fails: Callable[[int, float], bool], *, has_letters: bool = True
    ) -> None:
        time = Time()
        self.at: dict[int, float] = {}
        self.letters = Letters()
        self.sink = RecordingSink(
            before=lambda offsets: self.at.update(dict.fromkeys(offsets, time.seconds))
        )
        log = CommitLog.open(path)
        log.append([change(id=str(number)) for number in range(COUNT)])
        self.worker = Worker(
            sink("c0", retry_for=60.0, batch=BatchLimits(10, time=0.0)),
            self.sink,
            Steps([(".*", Objects(fails, time))]),
            log,
            SinkPlace(-1),
            dead_letters=self.letters if has_letters else None,
            clock=time.clock,
        )
        self.worker.start()
        for _ in attempts(DEADLINE):
            # Letters at the end of the log would be held.
            if self.worker.place.offset == COUNT - 1:
                self.worker.leave()
            log.wake()
            if self.worker.is_done:
                break
        self.seconds = time.seconds
        log.close()


def test_an_object_that_always_fails_has_its_time_and_the_others_go_on(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda offset, _: offset == 14)
    assert run.letters.offsets == [14]
    assert {*run.sink.offsets} == {*range(COUNT)} - {14}
    assert run.seconds == pytest.approx(60.0)
    # Those before it did not wait.
    assert max(run.at[offset] for offset in range(14)) == 0.0


def test_without_a_file_the_sink_fails_before_the_message(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda offset, _: offset == 14, has_letters=False)
    assert str(run.worker.error) == "HTTP 500"
    assert run.worker.place.offset == 13
    assert run.seconds == pytest.approx(60.0)


def test_an_object_that_fails_for_a_while_is_no_dead_letter(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda offset, now: offset == 14 and now < 50)
    assert (run.letters.offsets, run.worker.error) == ([], None)
    assert run.sink.offsets == [*range(COUNT)]


def test_each_object_has_its_own_time(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda offset, _: offset in (3, 14, 30))
    assert run.letters.offsets == [3, 14, 30]
    assert run.seconds == pytest.approx(180.0)


def test_a_server_that_is_ill_makes_no_letters(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda offset, _: offset >= 14)
    assert "20 messages in a row were refused" in str(run.worker.error)
    assert (run.letters.offsets, run.worker.place.offset) == ([], 13)
    assert run.seconds == pytest.approx(60 + 19 * 6.3)  # pauses double


def test_a_server_that_was_ill_for_a_while_makes_letters_of_bad_objects_only(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, lambda offset, now: offset == 16 or (offset >= 14 and now < 100))
    assert (run.letters.offsets, run.worker.error) == ([16], None)
    assert {*run.sink.offsets} == {*range(COUNT)} - {16}


def test_a_refused_message_gets_one_attempt_more_once_another_one_succeeds() -> None:
    now = 0.0
    patience = Patience(10.0, lambda: now)
    assert not patience.is_over(5)
    now = 10.0
    assert patience.is_over(5)
    assert not patience.is_over(6)
    now = 11.0
    assert patience.is_over(6)
    patience.succeed()
    assert [patience.may_try_again([5, 6, 7]) for _ in range(2)] == [True, False]
    assert patience.is_over(5)
    patience.forget()
    assert not patience.is_over(5)
