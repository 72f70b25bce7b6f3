"""A pipe on Spark: its queries, each with an end of its own."""

import asyncio
import logging
import time
from collections.abc import Sequence

from oplog_pipe.folder.failures import exit_code
from oplog_pipe.model.exits import EXIT_OK
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.model.status import PipeStatus
from oplog_pipe.spark.query import SinkQuery
from oplogc import __version__

# Seconds between two looks at the queries.
_LOOK = 0.5

logger = logging.getLogger("oplog_pipe")


class SparkPipe:
    """Runs once."""

    def __init__(self, settings: PipeSettings, queries: Sequence[SinkQuery]) -> None:
        self._settings = settings
        self._queries = queries
        self._began = time.monotonic()
        self.hangs = False
        """Whether threads are still running after ``run``."""

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop``, or until all queries have ended. Return the exit code."""
        for query in self._queries:
            await asyncio.to_thread(query.start)
        try:
            while not all(each.is_done for each in self._queries):
                try:
                    await asyncio.wait_for(stop.wait(), _LOOK)
                    break
                except TimeoutError:
                    for query in self._queries:
                        await asyncio.to_thread(query.look)
        finally:
            await self._stop()
        errors = [each.error for each in self._queries if each.error is not None]
        return exit_code(errors[0]) if errors else EXIT_OK

    def status(self) -> PipeStatus:
        """Return the present state. Any thread may call it."""
        return PipeStatus(
            __version__,
            time.monotonic() - self._began,
            None,
            [],
            [query.status() for query in self._queries],
            str(self._settings.dir.resolve()),
        )

    async def _stop(self) -> None:
        running = [each for each in self._queries if not each.is_done]
        stopping = [asyncio.create_task(asyncio.to_thread(each.stop)) for each in running]
        if stopping:
            _, hanging = await asyncio.wait(stopping, timeout=self._settings.shutdown_timeout)
            self.hangs = bool(hanging)
            if hanging:
                logger.warning("queries hang: stopping without them; their batches come again")
