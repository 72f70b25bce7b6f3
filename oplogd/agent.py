"""The agent without its sockets for HTTP: the parts, the tasks that run them, and their orderly end."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from socket import socket
from typing import Any, NamedTuple

from oplogd.errors import StoreUnavailableError
from oplogd.garbage import Freezer
from oplogd.health import Health
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.spool import Spool
from oplogd.ingest.udp import UdpIngest
from oplogd.ingest.writer import write
from oplogd.passage import Passage
from oplogd.settings import Settings
from oplogd.store import Located, Store
from oplogd.stream.alarm import Alarm
from oplogd.stream.follower import follow
from oplogd.stream.frames import Framer
from oplogd.stream.hub import Hub
from oplogd.stream.ring import Ring

CLOCK_AHEAD_MS = 60_000
_RATE_SECONDS = 10
_PURGE_SECONDS = 3600.0
_CATCH_UP_SECONDS = 2.0
_LOCATE_SECONDS = 5.0

logger = logging.getLogger("oplogd.agent")


class Rates(NamedTuple):
    """Operations a second, averaged over the last ten seconds."""

    received: float = 0.0
    ingested: float = 0.0
    sent: float = 0.0


class Agent:
    """``open_spool`` and ``start`` once, then watch ``failed``; ``drain`` and ``stop`` end it.

    The caller opens and closes the store.
    """

    def __init__(self, settings: Settings, store: Store, udp_sockets: Sequence[socket]) -> None:
        self.settings = settings
        self.store = store
        self.health = Health()
        self.counters = Counters()
        self.queue = IngestQueue(settings.max_queued_events, settings.max_queued_bytes)
        self.udp = UdpIngest(udp_sockets, self.queue, self.counters)
        self.spool = (
            Spool(settings.spool, settings.spool_size, self.health, self.counters)
            if settings.spool
            else None
        )
        self.passage = Passage()
        framer = Framer(settings.object_url or "")
        self.ring = Ring(framer, settings.ring_size, settings.ring_bytes, Alarm().wake)
        self.hub = Hub(
            store,
            self.ring,
            framer,
            heartbeat=settings.heartbeat,
            max_connection_age=settings.max_connection_age,
            max_clients=settings.max_clients,
            max_clients_per_address=settings.max_clients_per_address,
            stall_timeout=settings.stall_timeout,
        )
        self.started = time.monotonic()
        self.stopping = False
        self.rates = Rates()
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves with a sentence when a task that must run for ever has died."""
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.Task[None]

    async def open_spool(self) -> None:
        """Raise StoreError if the spool cannot be opened."""
        if self.spool is not None:
            await self.spool.open()

    async def start(self) -> None:
        """While the store is away the agent is degraded: the follower finds the head when it is back."""
        follower = self.health.part("follower")
        try:
            async with asyncio.timeout(_LOCATE_SECONDS):
                located = await self.store.locate()
        except StoreUnavailableError as error:
            follower.bad(str(error))
        except TimeoutError:
            follower.bad(f"the store did not answer within {_LOCATE_SECONDS:g} s")
        else:
            _compare_clocks(located)
            self.ring.restart(located.head)
        self.udp.start()
        writing = write(
            self.store, self.queue, self.counters, self.health, self.spool, self.passage
        )
        self._writer = self._run("writer", writing)
        self._run("follower", follow(self.store, self.ring, self.health, self.passage))
        self._run("ticker", self.hub.tick())
        self._run("freezer", Freezer(self.hub).run())
        self._run("rates", self._measure_rates())
        if self.spool is not None:
            self._run("spool", self.spool.mend())
        if self.settings.tombstone_retention:
            self._run("purge", self._purge_tombstones(self.settings.tombstone_retention))

    async def drain(self) -> None:
        """Take nothing new, store what is queued, let the consumers have it, then end their streams."""
        self.stopping = True
        await self.udp.stop()
        await self._queue_emptied()
        await self._consumers_caught_up()
        await self.hub.end_all()
        await self.hub.cut_off_the_rest()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.spool is not None:
            await self.spool.close()

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    async def _queue_emptied(self) -> None:
        """Wait until everything is written, or the writer has died."""
        emptied = asyncio.create_task(self.queue.emptied(), name="queue")
        await asyncio.wait({emptied, self._writer}, return_when=asyncio.FIRST_COMPLETED)
        emptied.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.failed.done():
            return
        error = task.exception()
        logger.critical("the %s has died: %r", task.get_name(), error, exc_info=error)
        self.failed.set_result(f"the {task.get_name()} has died: {error!r}")

    async def _consumers_caught_up(self) -> None:
        """Wait a little until the ring holds the whole log and nobody who reads is behind it."""
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                head = (await self.store.locate()).head.offset
                while self.ring.head.offset < head or any(
                    consumer.phase == "live" and consumer.is_behind()
                    for consumer in self.hub.consumers
                ):
                    await asyncio.sleep(0.01)
        except (TimeoutError, StoreUnavailableError):
            return

    async def _measure_rates(self) -> None:
        counters, counts = self.counters, self.hub.counts
        history: deque[tuple[float, int, int, int]] = deque(maxlen=_RATE_SECONDS + 1)
        while True:
            now = (time.monotonic(), counters.received, counters.ingested, counts.events_sent)
            history.append(now)
            seconds = now[0] - history[0][0]
            if seconds > 0:
                self.rates = Rates(
                    *(
                        round((b - a) / seconds, 1)
                        for a, b in zip(history[0][1:], now[1:], strict=True)
                    )
                )
            await asyncio.sleep(1)

    async def _purge_tombstones(self, retention: float) -> None:
        while True:
            try:
                now = (await self.store.locate()).now_ms
                count = await self.store.purge(now - int(retention * 1000))
                if count:
                    logger.info(
                        "forgot %d objects that were deleted more than %g s ago", count, retention
                    )
            except StoreUnavailableError as error:
                logger.warning("could not forget deleted objects: %s", error)
            await asyncio.sleep(min(_PURGE_SECONDS, max(retention / 10, 1)))


def _compare_clocks(located: Located) -> None:
    ahead = located.head.ms - located.now_ms
    if ahead > CLOCK_AHEAD_MS:
        logger.warning(
            "the log's time is %d s ahead of the clock: ids and times of new operations follow the log. If the"
            " clock is right, stop the agents and run one of them once with --new-epoch",
            ahead // 1000,
        )
