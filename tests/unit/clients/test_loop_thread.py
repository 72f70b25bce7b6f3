"""A loop in a thread that cannot start fails its caller, and starts with a later call."""

import asyncio
import errno
import gc
import selectors
import socket
import sys
import threading
import weakref
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from oplogc import Producer
from oplogc.process import loop_thread
from oplogc.process.loop_thread import LoopThread
from tests.kits.processes.logged import DEADLINE


def _no_files(*_: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def _no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


async def _answer() -> int:
    return 42


@pytest.mark.parametrize(
    ("where", "name", "failing"),
    [
        (loop_thread, "_OwnLoop", _no_files),
        (threading.Thread, "start", _no_thread),
        (threading.Thread, "start", _interrupted),
        (threading.Thread, "__init__", _interrupted),
    ],
)
def test_a_thread_that_cannot_start_fails_the_call_and_starts_with_the_next(
    where: object, name: str, failing: object
) -> None:
    thread = LoopThread("test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, failing)
        with pytest.raises((OSError, RuntimeError, KeyboardInterrupt)):
            thread.call(_answer())
    assert not thread.is_running
    assert thread.call(_answer()) == 42
    thread.end()


@pytest.mark.parametrize(
    ("module", "name"), [(selectors, "DefaultSelector"), (socket, "socketpair")]
)
def test_a_loop_without_file_descriptors_leaves_nothing_to_its_end(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    opened: list[selectors.BaseSelector] = []
    ignored: list[object] = []

    class Selector(selectors.DefaultSelector):
        def __init__(self) -> None:
            super().__init__()
            opened.append(self)

    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    monkeypatch.setattr(selectors, "DefaultSelector", Selector)
    monkeypatch.setattr(module, name, _no_files)
    with pytest.raises(OSError, match="Too many open files"):
        LoopThread("test").start()
    gc.collect()
    assert ignored == []
    assert [each.get_map() for each in opened] == [None] * (name == "socketpair")


def test_a_call_in_the_thread_itself_is_refused() -> None:
    thread, refused = LoopThread("test"), Future[str]()

    def call() -> None:
        try:
            thread.call(_answer())
        except RuntimeError as error:
            refused.set_result(str(error))

    thread.soon(call)
    assert refused.result(DEADLINE).startswith("a future's callback cannot wait")
    assert thread.call(_answer()) == 42
    thread.end()


def test_a_handler_of_a_signal_within_a_start_uses_the_same_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = LoopThread("of a handler")
    own, answers = loop_thread._OwnLoop, []

    def interrupted() -> asyncio.AbstractEventLoop:
        monkeypatch.setattr(loop_thread, "_OwnLoop", own)
        answers.append(thread.call(_answer()))
        return own()

    monkeypatch.setattr(loop_thread, "_OwnLoop", interrupted)
    answers.append(thread.call(_answer()))
    assert answers == [42, 42]
    assert [each.name for each in threading.enumerate()].count("of a handler") == 1
    thread.end()


def test_a_handler_of_a_signal_that_ends_it_before_there_is_a_loop_lets_nothing_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = LoopThread("test")
    own = loop_thread._OwnLoop

    def interrupted() -> asyncio.AbstractEventLoop:
        thread.end()
        return own()

    monkeypatch.setattr(loop_thread, "_OwnLoop", interrupted)
    with pytest.raises(ValueError, match="this object is closed"):
        thread.call(_answer())
    assert thread._thread is None


@pytest.mark.parametrize("is_before", [True, False])
def test_a_handler_of_a_signal_within_a_start_may_end_it(
    monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    thread = LoopThread("of a handler")
    start = threading.Thread.start

    def interrupted(starting: threading.Thread) -> None:
        if is_before:
            thread.end()
        start(starting)
        if not is_before:
            thread.end()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with suppress(RuntimeError):  # the loop has ended
        thread.soon(int)
    assert thread._thread is not None
    thread._thread.join(DEADLINE)
    assert not thread.is_running
    with pytest.raises(ValueError, match="this object is closed"):
        thread.soon(int)


@pytest.mark.parametrize("name", ["call", "soon"])
def test_no_end_comes_between_a_call_and_its_place_in_the_loop(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    thread = LoopThread("test")
    loop = thread.start()
    place, locked = loop.call_soon_threadsafe, []

    def interrupted(*arguments: Any, **options: Any) -> asyncio.Handle:
        other = threading.Thread(target=lambda: locked.append(not thread._lock.acquire(False)))
        other.start()
        other.join()
        return place(*arguments, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    if name == "call":
        assert thread.call(_answer()) == 42
    else:
        thread.soon(int)
    assert locked[0]
    thread.end()


def test_a_thread_that_hangs_at_its_end_counts_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "_END_SECONDS", 0)
    thread, go_on = LoopThread("test"), threading.Event()
    thread.soon(go_on.wait)
    assert thread.is_running
    thread.end()
    assert not thread.is_running
    go_on.set()


def test_an_ended_thread_does_not_keep_its_owner_with_the_frames_of_an_error() -> None:
    class Owner:
        async def main(self) -> None:
            await asyncio.Event().wait()

    owner, thread, frames = Owner(), LoopThread("test"), list[Any]()
    freed = weakref.ref(owner)
    thread.start(owner.main)
    thread.soon(lambda: frames.append(sys._getframe()))
    thread.end()
    assert thread._thread is not None
    thread._thread.join(DEADLINE)
    gc.disable()
    try:
        del owner
        assert freed() is None
    finally:
        gc.enable()
    assert frames


def test_a_producer_buffers_nothing_while_its_thread_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Producer("http://127.0.0.1:9")
    monkeypatch.setattr(loop_thread, "_OwnLoop", _no_files)
    with pytest.raises(OSError, match="Too many open files"):
        producer.send("insert", "video", "1")
    assert producer.counters.buffered == 0
    producer.close()
