"""Hands events to handlers: one after the other, in order, each for a bounded time."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable

from oplog_relay.model.events import Event, Handler

_log = logging.getLogger("oplog_relay")

# Seconds for one handler and one event. Meanwhile no row moves, or no other relay leads.
HANDLER_S = 30.0
# Seconds a cancelled handler gets to end.
_CANCELLED_S = 1.0


class Handling:
    """An event on its way through the handlers. ``done``: it has passed them all.

    ``is_late``: a handler was cancelled, because it took too long.
    """

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.is_late = False

    async def wait(self) -> bool:
        """Wait until it is done. Return whether all handlers were in time."""
        await self.done.wait()
        return not self.is_late


class Dispatcher:
    """The handlers of a relay. An error of a handler is logged and changes nothing."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self._events: asyncio.Queue[tuple[Event, Handling]] = asyncio.Queue()
        # Tasks in which handlers run: the task of ``run``, and of an asynchronous handler.
        self._tasks: set[asyncio.Task[None] | None] = set()

    def post(self, event: Event) -> Handling:
        """Hand an event over."""
        handling = Handling()
        self._events.put_nowait((event, handling))
        return handling

    def is_behind(self) -> bool:
        """Return whether earlier events still wait."""
        return not self._events.empty()

    def is_handling(self) -> bool:
        """Return whether the caller is a handler."""
        return asyncio.current_task() in self._tasks

    async def run(self) -> None:
        self._tasks.add(asyncio.current_task())
        while True:
            event, handling = await self._events.get()
            for handler in (*self.handlers,):
                handling.is_late |= not await self._handle(handler, event)
            handling.done.set()
            self._events.task_done()

    async def drain(self, seconds: float) -> None:
        """Wait for the handlers of all events, for some seconds at most."""
        async with asyncio.timeout(seconds):
            await self._events.join()

    async def _handle(self, handler: Handler, event: Event) -> bool:
        """Call a handler. Return whether it was in time."""
        try:
            result = handler(event)
        except Exception as error:
            _log_failure(event, error)
            return True
        if not inspect.isawaitable(result):
            return True
        task = asyncio.create_task(_await(result), name="oplog relay: handler")
        self._tasks.add(task)
        try:
            await asyncio.wait({task}, timeout=HANDLER_S)
            if not task.done():
                _log.error(
                    "the handler %s of %s has not ended within %g s: it is cancelled",
                    _name(handler),
                    type(event).__name__,
                    HANDLER_S,
                )
                return False
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCELLED_S)
            self._tasks.discard(task)
        # A handler is cancelled, too, if it awaits a task which it has cancelled.
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        if failure is not None:
            _log_failure(event, failure)
        return True


async def _await(result: Awaitable[None]) -> None:
    await result


def _name(handler: Handler) -> str:
    """Return module and name of a handler, or of its class."""
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{named.__module__}.{named.__qualname__}"


def _log_failure(event: Event, error: BaseException) -> None:
    _log.error("a handler of %s has failed", type(event).__name__, exc_info=error)
