"""The tasks of an agent. None of them may end by itself."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Named tasks. ``failed`` resolves with a sentence when one of them has died.

    Create it in the event loop.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._logger = logger
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.failed.done():
            return
        error = task.exception()
        self._logger.critical("the %s has died: %r", task.get_name(), error, exc_info=error)
        self.failed.set_result(f"the {task.get_name()} has died: {error!r}")
