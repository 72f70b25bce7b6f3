"""Hands events to handlers: one after the other, in order."""

import asyncio
import inspect
import logging

from oplog_relay.events import Event, Handler

_log = logging.getLogger("oplog_relay")


class Dispatcher:
    """The handlers of a relay. An error of a handler is logged and changes nothing."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self._events: asyncio.Queue[tuple[Event, asyncio.Event]] = asyncio.Queue()

    def post(self, event: Event) -> asyncio.Event:
        """Hand an event over. Return an asyncio event that is set once the handlers are done."""
        done = asyncio.Event()
        self._events.put_nowait((event, done))
        return done

    def is_behind(self) -> bool:
        """Return whether earlier events still wait."""
        return not self._events.empty()

    async def run(self) -> None:
        while True:
            event, done = await self._events.get()
            for handler in (*self.handlers,):
                await _handle(handler, event)
            done.set()
            self._events.task_done()

    async def drain(self, seconds: float) -> None:
        """Wait for the handlers of all events, for some seconds at most."""
        async with asyncio.timeout(seconds):
            await self._events.join()


async def _handle(handler: Handler, event: Event) -> None:
    try:
        result = handler(event)
        if inspect.isawaitable(result):
            await result
    except asyncio.CancelledError:
        # Also raised by a handler that awaits a task which it has cancelled.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        _log_failure(event)
    except Exception:
        _log_failure(event)


def _log_failure(event: Event) -> None:
    _log.exception("a handler of %s has failed", type(event).__name__)
