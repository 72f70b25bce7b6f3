"""Runs several asyncio programs in one thread on a clock of its own, in a random order.

Each ``Process`` is an event loop. It can be frozen, as by SIGSTOP, and killed. Nothing waits: the
clock jumps to the next timer once no process has anything to do.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Any, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class Simulation:
    """The clock, the processes, and what happens outside of them (``after``)."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function of the world later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), call))

    def run(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Run until a condition holds, for some seconds of the clock at most. Return whether."""
        end = self.now + seconds
        while not is_done():
            ready = [each for each in self.processes if each.can_run()]
            if ready:
                self.random.choice(ready).step()
            elif self._events and self._events[0][0] <= end:
                self.now, _, call = heapq.heappop(self._events)
                call()
            else:
                self.now = end
                return False
        return True

    def close(self) -> None:
        """Cancel all tasks of all processes, and run them to their ends."""
        for process in self.processes:
            process.is_cut = True
            process.thaw()
        for process in self.processes:
            process.is_dead = False
            while tasks := asyncio.all_tasks(process):
                for task in tasks:
                    task.cancel()
                self.run(partial(_are_done, tasks), 100)


class Process(asyncio.AbstractEventLoop):
    """An event loop that runs one callback per ``step``."""

    def __init__(self, simulation: Simulation) -> None:
        self.is_cut = False
        self.is_dead = False
        self.errors: list[dict[str, Any]] = []
        self._frozen_until = 0.0
        self._simulation = simulation
        self._ready: deque[tuple[asyncio.Handle, Context, Callable[[], object]]] = deque()
        simulation.processes.append(self)

    def can_run(self) -> bool:
        return bool(self._ready) and not self.is_dead and self._frozen_until <= self._simulation.now

    def freeze(self, seconds: float) -> None:
        self._frozen_until = self._simulation.now + seconds
        self._simulation.after(seconds, lambda: None)

    def thaw(self) -> None:
        self._frozen_until = 0.0

    def step(self) -> None:
        handle, context, call = self._ready.popleft()
        if handle.cancelled():
            return
        asyncio._set_running_loop(self)
        try:
            context.run(call)
        finally:
            asyncio._set_running_loop(None)

    # The parts of an event loop that tasks, futures and locks use.

    def time(self) -> float:
        return self._simulation.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, _T] | Generator[Any, None, _T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[_T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle, context, partial(callback, *args))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        context = context or copy_context()
        call = partial(callback, *args)
        self._simulation.after(
            max(0.0, when - self.time()), lambda: self._enqueue(handle, context, call)
        )
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _enqueue(
        self, handle: asyncio.Handle, context: Context | None, call: Callable[[], object]
    ) -> None:
        if not handle.cancelled():
            self._ready.append((handle, context or copy_context(), call))


def _are_done(tasks: set[asyncio.Task[Any]]) -> bool:
    return all(task.done() for task in tasks)
