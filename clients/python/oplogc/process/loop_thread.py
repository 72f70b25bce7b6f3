"""A thread with an event loop, for objects whose methods block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from oplogc.process.own_loop import OwnLoop

_END_SECONDS = 1.0
_R = TypeVar("_R")


class LoopThread:
    """Starts with the first call. Any thread may call any method."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._ended = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def call(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine there, wait for its end and return its result.

        An exception here, as by Ctrl-C, cancels it. Raises ValueError after ``end``.
        """
        try:
            running = asyncio.run_coroutine_threadsafe(work, self._started())
        except BaseException:
            work.close()
            raise
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function there. Does not wait. Raises ValueError after ``end``."""
        self._started().call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        """Cancel the tasks that still run there, and end."""
        self._ended = True
        if self._thread is None or self._loop is None or self._task is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._task.cancel)
        except RuntimeError:  # it has ended
            return
        if threading.current_thread() is not self._thread:
            # It may hang in the lookup of a host; it ends with the process.
            self._thread.join(_END_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._ended:
            raise ValueError("this object is closed")
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()  # raises RuntimeError if no thread can be started
                self._thread = thread
        self._ready.wait()
        assert self._loop is not None
        return self._loop

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=OwnLoop) as runner:
            try:
                runner.run(self._wait())
            except asyncio.CancelledError:
                return

    async def _wait(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._ready.set()
        await asyncio.Event().wait()
