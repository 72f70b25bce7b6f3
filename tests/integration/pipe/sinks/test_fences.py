"""Drivers and writers of one owner's rows: those that come too late write nothing."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol, cast

import pytest

from oplog_pipe.errors import FencedError, SinkError
from oplog_pipe.sinks.base import Fenced
from oplog_pipe.sinks.parts import fence as parts
from oplog_pipe.sinks.parts.fence import SETTLED, Fence, FenceLook
from tests.kits.pipe.messages import OPLOG, message, owner, version
from tests.kits.pipe.targets import OwnedSink, Target


class FencedSink(OwnedSink, Fenced, Protocol):
    pass


Sinks = Callable[..., FencedSink]


@pytest.fixture
def sinks(target: Target) -> Iterator[Sinks]:
    """Return open sinks of one owner, or of one that is named."""
    unique = uuid.uuid4().hex  # all tests share the servers
    with ExitStack() as stack:

        def opened(fence: Fence | None = None, pipe: str = "test") -> FencedSink:
            sink = cast(FencedSink, target.sink())
            sink.own(owner(f"{pipe}-{unique}"))
            sink.open()
            if fence is not None:
                sink.stand_at(fence)
            stack.callback(sink.close)
            return sink

        yield opened


@pytest.mark.parametrize("count", [1, 500])
def test_a_writer_that_stands_where_the_fence_was_writes_nothing(
    target: Target, sinks: Sinks, count: int
) -> None:
    driver = sinks()
    term = driver.begin_term()
    driver.move_fence(Fence(term, 0))
    late = sinks(Fence(term, 0))
    late.write([message(n, f"x{n}") for n in range(count)])
    assert len(target.objects()) == count
    driver.move_fence(Fence(term, 1))
    present = sinks(Fence(term, 1))
    present.write([message(count + n, f"x{n}", op="delete") for n in range(count)])
    with pytest.raises(FencedError):
        late.write([message(n, f"x{n}") for n in range(count)])
    with pytest.raises(FencedError):
        late.write([message(2 * count, "new")])
    assert target.objects() == {}


def test_the_end_of_a_copy_that_comes_too_late_removes_nothing(
    target: Target, sinks: Sinks
) -> None:
    driver = sinks()
    first = driver.begin_term()
    driver.move_fence(Fence(first, 3))
    driver.stand_at(Fence(first, 3))
    driver.write([message(0)])
    other = sinks()
    second = other.begin_term()
    assert second > first
    with pytest.raises(FencedError):
        driver.end_copy(version(5), OPLOG)
    with pytest.raises(FencedError, match="another driver"):
        driver.move_fence(Fence(first, 4))
    other.move_fence(Fence(second, 2))
    other.stand_at(Fence(second, 2))
    assert len(target.objects()) == 1
    other.end_copy(version(5), OPLOG)
    assert target.objects() == {}


def test_a_step_may_be_repeated_but_not_taken_back(sinks: Sinks) -> None:
    driver = sinks()
    term = driver.begin_term()
    for step in (0, 0, 7, 7):
        driver.move_fence(Fence(term, step))
    with pytest.raises(FencedError):
        driver.move_fence(Fence(term, 6))


def test_each_owner_has_a_fence_of_its_own(target: Target, sinks: Sinks) -> None:
    one, other = sinks(), sinks(pipe="other")
    fence = Fence(one.begin_term(), 5)
    one.move_fence(fence)
    assert other.begin_term() == 1
    writer = sinks(fence)
    writer.write([message(0)])
    assert len(target.objects()) == 1


def test_a_writer_without_a_fence_is_not_held_up(target: Target, sinks: Sinks) -> None:
    sinks().begin_term()
    sinks().write([message(0)])
    assert len(target.objects()) == 1


def test_a_writer_that_stopped_behind_its_look_sends_nothing(
    target: Target, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = sinks()
    fence = Fence(driver.begin_term(), 0)
    driver.move_fence(fence)
    writer = sinks(fence)
    if not writer.late_seconds:
        return  # the fence is a part of each transaction
    writer.write([message(0)])
    monkeypatch.setattr(parts, "LOOK_SECONDS", -1.0)
    for late in ([message(1, op="delete")], [message(1, "b")]):
        with pytest.raises(SinkError, match="did nothing for") as caught:
            writer.write(late)
        assert caught.value.transient
    assert target.objects().keys() == {"a"}


def test_a_pipe_without_spark_ends_the_terms_of_drivers(target: Target, sinks: Sinks) -> None:
    plain = sinks()
    assert plain.read_fence() is None
    driver = sinks()
    fence = Fence(driver.begin_term(), 0)
    assert fence.term == 1
    driver.move_fence(fence)
    late = sinks(fence)
    late.write([message(0)])
    assert plain.read_fence() == fence
    plain.move_fence(Fence(plain.begin_term(), SETTLED))
    assert sinks().read_fence() == (2, SETTLED)
    plain.write([message(1, op="delete")])
    with pytest.raises(FencedError):
        late.write([message(0)])
    assert target.objects() == {}


def test_a_look_at_the_fence_holds_for_seconds() -> None:
    now = 100.0
    look = FenceLook(Fence(1, 2), lambda: Fence(1, 2), lambda: now)
    look.look()
    now += parts.LOOK_SECONDS
    look.check()
    now += 0.1
    with pytest.raises(SinkError, match="did nothing for 10 s") as caught:
        look.check()
    assert caught.value.transient
    look.look()
    look.check()
    with pytest.raises(FencedError):
        FenceLook(Fence(1, 2), lambda: Fence(2, 2)).look()
    with pytest.raises(FencedError):
        FenceLook(Fence(1, 2), lambda: None).look()
