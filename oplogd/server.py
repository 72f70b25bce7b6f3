"""The life of an agent process: open, serve, stop in order."""

import asyncio
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from socket import socket
from typing import Any

import uvicorn

from oplogd import __version__
from oplogd.agent import Agent
from oplogd.announce import announce, warn
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
from oplogd.host.sockets import base_url
from oplogd.host.stop import EXIT_FAILED, EXIT_OK, EXIT_UNWRITTEN, EXIT_USAGE, Stop, leave
from oplogd.listen import open_listeners
from oplogd.store import Store
from oplogd.store.sqlite import SqliteStore
from oplogd.web.app import create_web
from oplogd.web.connection.edge import Edge
from oplogd.web.connection.protocol import protocol_class

__all__ = ["EXIT_FAILED", "EXIT_OK", "EXIT_UNWRITTEN", "EXIT_USAGE", "make_store", "run", "serve"]

# How long the event loop may keep the GIL from the store's threads. An append waits for it about
# five times: with Python's default of 5 ms it takes 30 ms beside a busy loop.
SWITCH_SECONDS = 0.0001
# After this time a store that does not open is named in the log.
OPENING_SECONDS = 8.0
# How long a stop waits for a stream whose consumer does not read.
_CONSUMER_SECONDS = 2

logger = logging.getLogger("oplogd")


def make_store(settings: Settings, clock: Clock = SYSTEM) -> Store:
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
    )


async def serve(
    settings: Settings, on_ready: Callable[[str], None] | None = None, clock: Clock = SYSTEM
) -> int:
    """Run an agent until a signal ends it and return the exit code. ``on_ready`` gets the base URL.

    Raises StartupError, and StoreFlagError if a flag cannot be used whatever the store holds. Does
    not return if the stop is cut short: the process ends at once, because a thread may hang.
    """
    stop = Stop(settings.shutdown_timeout)
    stop.listen()
    http, udp = open_listeners(settings)
    opening = asyncio.create_task(_open(settings, stop, http, udp, clock), name="opening")
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
        for sock in (*http, *udp):
            sock.close()
        if isinstance(error, SettingError | StoreFlagError):
            raise
        flag = " (--store)" if isinstance(error, StoreError) and settings.mongo_url is None else ""
        kind = SettingError if isinstance(error, ForeignStoreError) else StartupError
        raise kind(f"{error}{flag}") from None
    return await process.run(on_ready)


async def _open(
    settings: Settings, stop: Stop, http: list[socket], udp: list[socket], clock: Clock
) -> "_Process":
    store = make_store(settings, clock)
    was_written = settings.mongo_url is None and settings.store.exists()
    try:
        agent = Agent(settings, store, udp, clock)
        server = _Server(_uvicorn_config(settings, agent), store)
        logger.debug("opening the store")
        await agent.open_spool()
        await store.open()
        await agent.start()
    except asyncio.CancelledError:
        await store.close()
        raise
    was_written = was_written or agent.ring.head.offset > 0
    return _Process(settings, store, agent, http, server, stop, was_written=was_written)


async def _ended(task: "asyncio.Task[_Process]") -> None:
    await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Process:
    """``was_written``: the store was there before this start."""

    settings: Settings
    store: Store
    agent: Agent
    http: list[socket]
    server: "_Server"
    stop: Stop
    was_written: bool

    async def run(self, on_ready: Callable[[str], None] | None) -> int:
        serving = asyncio.create_task(self.server.serve(sockets=self.http), name="http")
        url = base_url(self.http, tls=self.settings.tls_certificate is not None)
        gc.freeze()  # objects made at start stay for ever; garbage collection skips them
        while not self.server.started and not serving.done():
            await asyncio.sleep(0.005)
        store = self.store.kind if self.settings.mongo_url is not None else None
        announce(self.settings, url, self.http, self.agent.udp.addresses, store)
        warn(self.settings, self.http, was_written=self.was_written)
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
        await self.agent.drain()
        self.server.should_exit = True
        await serving
        await self.agent.stored()
        await self.agent.stop()
        await self.store.close()


class _Server(uvicorn.Server):
    """A server whose answers all name the store, as soon as its identity is known.

    It leaves signals to ``Stop``: the queue is stored before the server stops.
    """

    def __init__(self, config: uvicorn.Config, store: Store) -> None:
        super().__init__(config)
        self._store = store
        self._named: str | None = None
        self._unnamed = config.encoded_headers

    async def on_tick(self, counter: int) -> bool:
        """Do as uvicorn ten times per second. At 0 it takes over the headers of all answers."""
        identity = self._store.identity
        if identity != self._named:
            named = [(b"oplog-store", identity.encode())] if identity else []
            self.config.encoded_headers = [*self._unnamed, *named]
            self._named = identity
            counter = 0
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_config(settings: Settings, agent: Agent) -> uvicorn.Config:
    app, short_way = create_web(agent)
    config = uvicorn.Config(
        Edge(app, os.environ),
        proxy_headers=False,  # Edge reads them, after it has unmapped the peer's address
        http=protocol_class(settings, agent.descriptors, short_way),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("Server", f"oplog/{__version__}")],
        backlog=4096,
        timeout_graceful_shutdown=_CONSUMER_SECONDS,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    try:
        config.load()
    except OSError as error:  # SSLError included
        files = f"--tls-certificate {settings.tls_certificate}, --tls-key {settings.tls_key}"
        raise SettingError(
            f"{files}: not a certificate and its key, both in PEM ({error})"
        ) from None
    return config


def run(
    settings: Settings, on_ready: Callable[[str], None] | None = None, clock: Clock = SYSTEM
) -> int:
    """Call ``serve`` in a new event loop, of uvloop except on Windows."""
    raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    if sys.platform == "win32":
        return asyncio.run(serve(settings, on_ready, clock))
    import uvloop

    return uvloop.run(serve(settings, on_ready, clock))


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: each consumer needs one file."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
