"""The life of an agent process: open, serve, stop in order."""

import asyncio
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from socket import socket
from typing import Any

import uvicorn

from oplogd import __version__, systemd
from oplogd.agent import Agent
from oplogd.errors import (
    ForeignStoreError,
    SettingError,
    StartupError,
    StoreError,
    StoreFlagError,
)
from oplogd.listen import open_listeners
from oplogd.settings import Settings
from oplogd.stop import EXIT_FAILED, EXIT_OK, EXIT_UNWRITTEN, EXIT_USAGE, Stop, leave
from oplogd.store import Store
from oplogd.store.sqlite import SqliteStore
from oplogd.web.app import create_app
from oplogd.web.connection.protocol import protocol_class
from oplogd.web.connection.uvicorn_parts import require_parts
from oplogd.web.forwarded import ClientAddress

__all__ = ["EXIT_FAILED", "EXIT_OK", "EXIT_UNWRITTEN", "EXIT_USAGE", "make_store", "run", "serve"]

SWITCH_SECONDS = 0.0005
"""How long the event loop may keep the GIL from the store's threads; Python's own 5 ms make an append take 30."""

_CONSUMER_SECONDS = 2
"""How long a stop waits for a stream whose consumer does not read."""

logger = logging.getLogger("oplogd")


def make_store(settings: Settings) -> Store:
    """Raises StoreError."""
    if settings.mongo_url is not None:
        from oplogd.store.mongo import MongoStore  # a sixth of the time that starting takes

        return MongoStore(
            settings.mongo_url.reveal(),
            collection=settings.log_collection,
            max_bytes=settings.capped_collection_size,
            lease=settings.lease,
        )
    return SqliteStore(settings.store, settings.capped_collection_size)


async def serve(settings: Settings, on_ready: Callable[[str], None] | None = None) -> int:
    """Run an agent until a signal ends it; the exit code. ``on_ready`` gets the base URL.

    Raises StartupError, and StoreFlagError for a flag that can never be used. Does not return when the stop is cut short: the
    process ends at once, since a thread may hang.
    """
    stop = Stop(settings.shutdown_timeout)
    stop.listen()
    http, udp = open_listeners(settings)
    opening = asyncio.create_task(_open(settings, stop, http, udp), name="opening")
    asked = asyncio.create_task(stop.asked.wait(), name="signal")
    await asyncio.wait({opening, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not opening.done():
        logger.info("stopping before the agent was ready")
        opening.cancel()
        stop.code = EXIT_OK  # nothing was taken yet
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
    settings: Settings, stop: Stop, http: list[socket], udp: list[socket]
) -> "_Process":
    store = make_store(settings)
    try:
        agent = Agent(settings, store, udp)
        server = _Server(_uvicorn_config(settings, agent))
        logger.debug("opening the store")
        await agent.open_spool()
        await store.open()
        await agent.start()
    except asyncio.CancelledError:
        await store.close()
        raise
    return _Process(settings, store, agent, http, server, stop)


async def _ended(task: "asyncio.Task[_Process]") -> None:
    await asyncio.gather(task, return_exceptions=True)


class _Process:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        agent: Agent,
        http: list[socket],
        server: "_Server",
        stop: Stop,
    ) -> None:
        self._settings = settings
        self._store = store
        self._agent = agent
        self._http = http
        self._server = server
        self._stop = stop

    async def run(self, on_ready: Callable[[str], None] | None) -> int:
        serving = asyncio.create_task(self._server.serve(sockets=self._http), name="http")
        url = _url(self._settings, self._http[0])
        gc.freeze()  # what start-up made stays; collections need not look at it
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        udp = ", ".join(self._agent.udp.addresses) or "off"
        store = self._settings.store if self._settings.mongo_url is None else self._store.kind
        logger.info("oplogd %s on %s, UDP %s, store %s", __version__, url, udp, store)
        systemd.notify("READY=1")
        if on_ready:
            on_ready(url)
        asked = asyncio.create_task(self._stop.asked.wait(), name="signal")
        ends: set[asyncio.Future[Any]] = {asked, serving, self._agent.failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        systemd.notify("STOPPING=1")
        return await self._end(serving, broken=self._agent.failed.done() or serving.done())

    async def _end(self, serving: asyncio.Task[None], broken: bool) -> int:
        """End intake, queue, streams and store, in this order. A second signal or the deadline cuts it short."""
        agent = self._agent
        self._stop.code = EXIT_FAILED if broken else EXIT_UNWRITTEN
        logger.info("stopping: storing %d queued operations", agent.queue.operations)
        try:
            cut = await self._stop.within(self._end_in_order(serving))
        except Exception as error:
            logger.critical("the stop failed: %r", error, exc_info=error)
            leave(EXIT_FAILED)
        counters = agent.counters
        logger.info(
            "received %d operations: stored %d, refused %d as invalid, discarded %d, left %d, in the spool %d",
            counters.received,
            counters.ingested,
            counters.error,
            counters.discarded,
            agent.queue.operations,
            counters.in_spool,
        )
        if agent.failed.done():
            self._stop.code = EXIT_FAILED
        if cut is None:
            if self._stop.code == EXIT_UNWRITTEN:
                self._stop.code = EXIT_OK
            logger.info("stopped")
            return self._stop.code
        streams = len(agent.hub.consumers)
        hangs = (
            "" if agent.queue.operations or streams else "; the store or the spool does not close"
        )
        logger.error(
            "stopping at once, %s: %d operations are not confirmed as stored, %d streams open%s",
            cut,
            agent.queue.operations,
            streams,
            hangs,
        )
        leave(self._stop.code)

    async def _end_in_order(self, serving: asyncio.Task[None]) -> None:
        await self._agent.drain()
        self._server.should_exit = True
        await serving
        await self._agent.stop()
        await self._store.close()


class _Server(uvicorn.Server):
    """Leaves the signals to us: the queue is drained before the server stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_config(settings: Settings, agent: Agent) -> uvicorn.Config:
    require_parts()
    config = uvicorn.Config(
        ClientAddress(create_app(agent), os.environ),
        proxy_headers=False,  # ClientAddress judges them, after it has unmapped the peer's address
        http=protocol_class(settings),
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
    except OSError as error:  # an SSLError is one
        files = f"--tls-certificate {settings.tls_certificate}, --tls-key {settings.tls_key}"
        raise SettingError(
            f"{files}: not a certificate and its key, both in PEM ({error})"
        ) from None
    return config


def _url(settings: Settings, sock: socket) -> str:
    scheme = "https" if settings.tls_certificate else "http"
    host, port = sock.getsockname()[:2]
    if host in ("::", "0.0.0.0"):
        host = "localhost"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def run(settings: Settings, on_ready: Callable[[str], None] | None = None) -> int:
    """``serve`` in a new event loop, uvloop's where there is one. Does not return when the stop is cut short."""
    raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    if sys.platform == "win32":
        return asyncio.run(serve(settings, on_ready))
    import uvloop

    return uvloop.run(serve(settings, on_ready))


def raise_file_limit() -> None:
    """Each consumer needs a file descriptor, and the usual soft limit is 1,024."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
