"""What a worker keeps open between its tasks."""

import threading
import time

import pytest

from oplog_pipe.spark.tasks.held import Held


class Thing:
    closed = 0

    def close(self) -> None:
        self.closed += 1
        raise OSError  # a failure of this kind harms nobody


def use(held: Held, place: str = "a", run: str = "1") -> Thing:
    with held.use(place, run, Thing) as found:
        assert found.closed == 0
    return found


def test_tasks_of_one_run_share_a_thing() -> None:
    held = Held()
    first = use(held)
    assert use(held) is first
    assert use(held, place="b") is not first
    other = use(held, run="2")
    assert other is not first
    assert (first.closed, other.closed) == (1, 0)


def test_a_thing_is_closed_after_a_failure() -> None:
    held = Held()
    first = use(held)
    with pytest.raises(ValueError, match="task"), held.use("a", "1", Thing):
        raise ValueError("task")
    assert first.closed == 1
    assert use(held) is not first


def test_only_what_is_idle_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(threading.Timer, "start", lambda self: None)
    held = Held(idle=60)
    idle, busy = use(held, "a"), use(held, "b")
    now = 59.0
    use(held, "b")
    now = 60.0
    held.sweep()
    assert (idle.closed, busy.closed) == (1, 0)
    assert use(held, "b") is busy
    now = 120.0
    held.sweep()
    assert busy.closed == 1


def test_a_timer_closes_by_itself() -> None:
    held = Held(idle=0.01)
    thing = use(held)
    timer = held._timer
    assert timer is not None
    timer.join()
    assert thing.closed == 1
