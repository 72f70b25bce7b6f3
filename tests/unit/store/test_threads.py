"""Threads that make calls for the event loop."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator

import pytest

from oplogd.store.sqlite.file.threads import Threads, ThreadsEndedError
from tests.kits.processes.logged import DEADLINE


class Gate:
    """A call that waits in its thread. ``begun``: set when a thread makes it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.opened.wait(DEADLINE)
        return threading.current_thread().name

    async def entered(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, DEADLINE)


@pytest.fixture
async def one() -> AsyncIterator[Threads]:
    threads = Threads(1, "only")
    yield threads
    await threads.end()


async def test_calls_return_raise_and_keep_their_order(one: Threads) -> None:
    seen: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    futures = [one.submit(lambda n=n: seen.append(n) or n) for n in range(100)]  # type: ignore
    failing = one.submit(fail)
    assert await asyncio.gather(*futures) == list(range(100)) == seen
    with pytest.raises(ValueError, match="no"):
        await failing
    assert await one.submit(lambda: threading.current_thread().name) == "only_0"


async def test_threads_begin_as_calls_wait_up_to_the_most() -> None:
    threads = Threads(2, "two")
    for _ in range(3):
        assert await threads.submit(lambda: threading.current_thread().name) == "two_0"
    assert "two_1" not in {each.name for each in threading.enumerate()}
    gates = [Gate() for _ in range(3)]
    running = [threads.submit(gate) for gate in gates]
    for gate in gates[:2]:
        await gate.entered()
    assert not gates[2].begun.is_set()
    for gate in gates:
        gate.opened.set()
    assert set(await asyncio.gather(*running)) == {"two_0", "two_1"}
    await threads.end()


async def test_a_cancelled_call_is_not_begun(one: Threads) -> None:
    gate, seen = Gate(), []
    running = one.submit(gate)
    cancelled = one.submit(lambda: seen.append("cancelled"))
    last = one.submit(lambda: seen.append("last"))
    cancelled.cancel()
    gate.opened.set()
    await asyncio.gather(running, last)
    assert seen == ["last"]


async def test_the_result_of_a_cancelled_running_call_is_dropped(one: Threads) -> None:
    gate = Gate()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    running = one.submit(gate)
    await gate.entered()
    running.cancel()
    gate.opened.set()
    assert await one.submit(lambda: 1) == 1
    assert errors == []


async def test_a_thread_that_cannot_start_is_tried_again(
    one: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            one.submit(lambda: 1)
    assert await one.submit(lambda: 1) == 1


def _no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_thread_outlives_the_loop_of_its_call() -> None:
    gate, threads = Gate(), Threads(1, "only")

    async def begin() -> None:
        threads.submit(gate)
        await gate.entered()

    async def go_on() -> None:
        assert await threads.submit(lambda: 1) == 1
        await threads.end()

    asyncio.run(begin())
    gate.opened.set()
    asyncio.run(go_on())


async def test_nothing_of_a_call_is_kept(one: Threads) -> None:
    call = Gate()
    call.opened.set()
    kept = weakref.ref(call)
    await one.submit(call)
    await one.submit(call.begun.is_set)
    del call
    assert kept() is None


async def test_an_end_drops_waiting_calls_and_waits_for_the_running_one(one: Threads) -> None:
    gate = Gate()
    running, waiting = one.submit(gate), one.submit(lambda: 1)
    await gate.entered()
    ending = asyncio.create_task(one.end())
    with pytest.raises(ThreadsEndedError):
        await waiting
    assert not ending.done()
    gate.opened.set()
    await ending
    assert await running == "only_0"
