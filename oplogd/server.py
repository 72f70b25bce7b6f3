"""The life of an agent process: open, serve, stop in order."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from socket import socket
from typing import Any, NamedTuple

import msgspec

from oplogd.agent import Agent
from oplogd.announce import Served, announce
from oplogd.clock import SYSTEM, Clock
from oplogd.config.settings import Settings
from oplogd.errors import (
    ForeignStoreError,
    SettingError,
    StartupError,
    StoreError,
    StoreFlagError,
)
from oplogd.host import systemd
from oplogd.host.link import Link
from oplogd.host.stop import EXIT_FAILED, EXIT_OK, EXIT_UNWRITTEN, EXIT_USAGE, Stop, leave
from oplogd.http_server import HttpServer
from oplogd.listen import Listeners, open_listeners
from oplogd.store import Store
from oplogd.store.sqlite import SqliteStore
from oplogd.workers.workers import Worker

__all__ = ["EXIT_FAILED", "EXIT_OK", "EXIT_UNWRITTEN", "EXIT_USAGE", "make_store", "run", "serve"]

# How long the event loop may keep the GIL from the store's threads. An append waits for it about
# five times: with Python's default of 5 ms it takes 30 ms beside a busy loop.
SWITCH_SECONDS = 0.0001
# After this time a store that does not open is named in the log.
OPENING_SECONDS = 8.0

logger = logging.getLogger("oplogd")


def make_store(settings: Settings, clock: Clock = SYSTEM, worker: Worker | None = None) -> Store:
    """Return the store that the settings choose, not yet open. Raises StoreError."""
    if settings.mongo_url is not None:
        # Imported here because it takes a sixth of the start.
        from oplogd.store.mongo import MongoStore

        return MongoStore(
            settings.mongo_url.reveal(),
            collection=settings.log_collection,
            max_bytes=settings.capped_collection_size,
            lease=settings.lease,
            topic_ttl=settings.topic_ttl,
            topics_max_bytes=settings.topics_max_bytes,
            clock=clock,
        )
    return SqliteStore(
        settings.store,
        settings.capped_collection_size,
        topic_ttl=settings.topic_ttl,
        clock=clock,
        reserve=settings.disk_reserve,
        topics_max_bytes=settings.topics_max_bytes,
        place=worker and worker.writer_place,
    )


class Joined(NamedTuple):
    """What a supervisor gives to a worker: its place, its sockets, and the line to it.

    ``spare``: the sockets for UDP of the other places, for a stop while they have no worker.
    """

    worker: Worker
    listeners: Listeners
    spare: Mapping[int, Sequence[socket]]
    link: Link

    def take_orphans(self) -> list[socket]:
        """Return the sockets that this worker has to empty. The others close."""
        for number, sockets in self.spare.items():
            if number not in self.link.orphans:
                for sock in sockets:
                    sock.close()
        return [sock for number in self.link.orphans for sock in self.spare[number]]


async def serve(
    settings: Settings,
    on_ready: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM,
    joined: Joined | None = None,
) -> int:
    """Run an agent until a signal ends it and return the exit code. ``on_ready`` gets the base URL.

    ``joined``: the process is a worker, and its supervisor ends it. None: it is the whole agent.
    Raises StartupError, and StoreFlagError if a flag cannot be used whatever the store holds. Does
    not return if the stop is cut short: the process ends at once, because a thread may hang.
    """
    stop = Stop(settings.shutdown_timeout)
    if joined is None:
        stop.listen()
        (listeners,) = open_listeners(settings)
    else:
        joined.link.listen(stop.ask)
        listeners = joined.listeners
    opening = asyncio.create_task(_open(settings, stop, listeners, clock, joined), name="opening")
    asked = asyncio.create_task(stop.asked.wait(), name="signal")
    slow = asyncio.get_running_loop().call_later(
        OPENING_SECONDS, logger.warning, "the store has not opened for %g s", OPENING_SECONDS
    )
    await asyncio.wait({opening, asked}, return_when=asyncio.FIRST_COMPLETED)
    slow.cancel()
    asked.cancel()
    if not opening.done():
        logger.info("stopping before the agent was ready")
        opening.cancel()
        stop.code = EXIT_OK  # nothing was received yet
        if await stop.within(_ended(opening)) is not None:
            leave(EXIT_OK)
        return EXIT_OK
    try:
        process = opening.result()
    except (StoreError, StartupError) as error:
        listeners.close()
        if isinstance(error, SettingError | StoreFlagError):
            raise
        flag = " (--store)" if isinstance(error, StoreError) and settings.mongo_url is None else ""
        kind = SettingError if isinstance(error, ForeignStoreError) else StartupError
        raise kind(f"{error}{flag}") from None
    return await process.run(on_ready)


async def _open(
    settings: Settings, stop: Stop, listeners: Listeners, clock: Clock, joined: Joined | None
) -> "_Process":
    store = make_store(settings, clock, joined and joined.worker)
    was_written = settings.mongo_url is None and settings.store.exists()
    try:
        agent = Agent(settings, store, listeners.udp, clock, joined and joined.worker)
        server = HttpServer(settings, agent)
        logger.debug("opening the store")
        await agent.open_spool()
        await store.open()
        await agent.start()
        server.start_tasks()
    except asyncio.CancelledError:
        await store.close()
        raise
    was_written = was_written or agent.ring.head.offset > 0
    return _Process(settings, store, agent, listeners, server, stop, joined, was_written)


async def _ended(task: "asyncio.Task[_Process]") -> None:
    await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Process:
    """``joined``: of a worker. ``was_written``: the store was there before this start."""

    settings: Settings
    store: Store
    agent: Agent
    listeners: Listeners
    server: HttpServer
    stop: Stop
    joined: Joined | None
    was_written: bool

    async def run(self, on_ready: Callable[[str], None] | None) -> int:
        serving = asyncio.create_task(self.server.serve(sockets=self.listeners.http), name="http")
        gc.freeze()  # objects made at start stay for ever; garbage collection skips them
        while not self.server.started and not serving.done():
            await asyncio.sleep(0.005)
        store = self.store.kind if self.settings.mongo_url is not None else None
        served = Served(store, self.was_written)
        if self.joined is not None:
            self.joined.link.ready(msgspec.json.encode(served))
        else:
            url = announce(self.settings, self.listeners.http, self.listeners.udp, served)
            systemd.notify("READY=1")
            if on_ready:
                on_ready(url)
        asked = asyncio.create_task(self.stop.asked.wait(), name="signal")
        ends: set[asyncio.Future[Any]] = {asked, serving, self.agent.failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        systemd.notify("STOPPING=1")
        return await self._end(serving, broken=self.agent.failed.done() or serving.done())

    async def _end(self, serving: asyncio.Task[None], *, broken: bool) -> int:
        """Stop in order and return the exit code.

        A second signal or the deadline ends the process at once.
        """
        agent = self.agent
        self.stop.code = EXIT_FAILED if broken else EXIT_UNWRITTEN
        logger.info("stopping: storing %d queued operations", agent.queued)
        try:
            cut = await self.stop.within(self._end_in_order(serving))
        except Exception as error:
            logger.critical("the stop failed: %r", error, exc_info=error)
            leave(EXIT_FAILED)
        counters = agent.counters
        logger.info(
            "received %d operations: stored %d, refused %d as invalid, discarded %d, left %d,"
            " in the spool %d, stale %d",
            counters.received,
            counters.ingested,
            counters.error,
            counters.discarded,
            agent.queued,
            counters.in_spool,
            counters.stale,
        )
        if agent.failed.done():
            self.stop.code = EXIT_FAILED
        if cut is None:
            if self.stop.code == EXIT_UNWRITTEN:
                self.stop.code = EXIT_OK
            logger.info("stopped")
            return self.stop.code
        streams = len(agent.hub.consumers)
        hangs = "" if agent.queued or streams else "; the store or the spool does not close"
        logger.error(
            "stopping at once, %s: %d operations are not confirmed as stored, %d streams open%s",
            cut,
            agent.queued,
            streams,
            hangs,
        )
        leave(self.stop.code)

    async def _end_in_order(self, serving: asyncio.Task[None]) -> None:
        joined = self.joined
        if joined is None:
            await self.agent.shut()
        else:
            link = joined.link
            await self.agent.shut(is_last=link.is_stopping, also=joined.take_orphans())
            await link.shut()
            if link.is_cut:  # the next supervisor wants the port
                self.server.leave_port()
        await self.agent.drain()
        self.server.should_exit = True
        await serving
        await self.agent.stored()
        await self.agent.stop()
        await self.store.close()


def run(
    settings: Settings,
    on_ready: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM,
    joined: Joined | None = None,
) -> int:
    """Call ``serve`` in a new event loop, of uvloop except on Windows."""
    raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    if sys.platform == "win32":
        return asyncio.run(serve(settings, on_ready, clock, joined))
    import uvloop

    return uvloop.run(serve(settings, on_ready, clock, joined))


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: each consumer needs one file."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
