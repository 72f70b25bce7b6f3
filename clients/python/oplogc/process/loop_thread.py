"""A thread with an event loop, for objects whose methods block."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_END_SECONDS = 1.0
_R = TypeVar("_R")
_Main = Callable[[], Coroutine[Any, Any, None]]


class _OwnLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        """Raises OSError for lack of file descriptors."""
        try:
            super().__init__()
        except OSError:  # asyncio leaves its selector open, and its __del__ fails
            if selector := getattr(self, "_selector", None):
                selector.close()
            asyncio.BaseEventLoop.close(self)
            raise

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Look up a host in this thread, which has nothing else to do.

        The loop's own way needs another thread. At the end of the interpreter no thread can be
        started, and a thread in a look-up would delay the end.
        """
        return socket.getaddrinfo(host, port, **options)


async def _until_cancelled() -> None:
    await asyncio.Event().wait()


class LoopThread:
    """Starts with the first call. Any thread may call any method: ValueError after ``end``."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Each call reaches the loop before its end does, which cancels it. Reentrant: a signal's
        # handler may come while its thread is in `start`.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._ended = False

    @property
    def is_current(self) -> bool:
        """Whether this is called in the thread, such as by a future's callback."""
        return threading.current_thread() is self._thread

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._ended

    def start(self, main: _Main = _until_cancelled) -> asyncio.AbstractEventLoop:
        """Start the thread if needed, and return its loop. A call that fails may be repeated.

        ``main``: runs there. Only the running thread refers to it: its owner may own this object.
        Raises RuntimeError if there can be no thread, and OSError if there can be no loop, such as
        for lack of file descriptors.
        """
        with self._lock:
            if self._ended:
                raise ValueError("this object is closed")
            if self._loop is None:
                loop = _OwnLoop()  # in the thread its failure would reach no caller
                if self._ended or self._loop is not None:  # by a handler meanwhile
                    loop.close()
                    return self.start(main)
                self._loop = loop
                try:
                    self._thread = threading.Thread(
                        target=self._run, args=(loop, main), name=self._name, daemon=True
                    )
                    self._thread.start()
                except BaseException:  # also of a signal's handler, perhaps after the start
                    if self._thread is None or self._thread.ident is None:
                        self._loop = self._thread = None
                        loop.close()
                    raise
            return self._loop

    def call(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine there. Return its result. An exception here, as by Ctrl-C, cancels it.

        Raises RuntimeError in the thread itself.
        """
        try:
            self.check_may_wait()
            with self._lock:
                running = asyncio.run_coroutine_threadsafe(work, self.start())
        except BaseException:
            work.close()
            raise
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def check_may_wait(self) -> None:
        """Raise RuntimeError in the thread itself: the call would wait for its own end."""
        if self.is_current:
            raise RuntimeError("a future's callback cannot wait: make this call in another thread")

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function there, without waiting. Raises ValueError after ``end``."""
        with self._lock:
            self.start().call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        """Cancel ``main`` and the tasks of the loop, and end."""
        with self._lock:
            self._ended = True
        if self._loop is None or self._thread is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # it has ended
            return
        if self._thread.is_alive() and not self.is_current:
            # It may hang in the look-up of a host. Then it ends with the process.
            self._thread.join(_END_SECONDS)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self, loop: asyncio.AbstractEventLoop, main: _Main) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            work = self._begin(main)
            del main  # an error of a cancelled task may keep this frame
            try:
                runner.run(work)
            except asyncio.CancelledError:
                return

    async def _begin(self, main: _Main) -> None:
        self._task = asyncio.current_task()
        if not self._ended:
            await main()
