"""The life of an agent process: open, serve, stop in order."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from socket import socket
from typing import Any

import uvicorn

from oplogd import __version__, systemd
from oplogd.agent import Agent
from oplogd.errors import StartupError, StoreError
from oplogd.listen import open_listeners
from oplogd.settings import Settings
from oplogd.store import Store
from oplogd.store.sqlite import SqliteStore
from oplogd.web.app import create_app
from oplogd.web.forwarded import ClientAddress

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_UNWRITTEN = 3
"""Stopped by the deadline or a second signal before all was stored or all streams had ended."""

SWITCH_SECONDS = 0.0005
"""How long the event loop may keep the GIL from the store's threads; Python's own 5 ms make an append take 30."""

_CONSUMER_SECONDS = 2
"""How long a stop waits for a stream whose consumer does not read."""

_log = logging.getLogger("oplogd")


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
    """Run an agent until SIGTERM or SIGINT; the exit code. ``on_ready`` gets the base URL. Raises StartupError."""
    http, udp = open_listeners(settings)
    try:
        store = make_store(settings)
        await store.open()
        agent = Agent(settings, store, udp)
        server = _Server(_uvicorn_config(settings, agent))
        await agent.start()
    except (StoreError, StartupError) as error:
        for sock in (*http, *udp):
            sock.close()
        flag = " (--store)" if isinstance(error, StoreError) and settings.mongo_url is None else ""
        raise StartupError(f"{error}{flag}") from None
    return await _Process(settings, store, agent, http, server).run(on_ready)


class _Process:
    def __init__(self, settings: Settings, store: Store, agent: Agent, http: list[socket], server: "_Server") -> None:
        self._settings = settings
        self._store = store
        self._agent = agent
        self._http = http
        self._server = server
        self._asked = asyncio.Event()
        self._forced = asyncio.Event()

    async def run(self, on_ready: Callable[[str], None] | None) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # not on Windows
                loop.add_signal_handler(number, self._on_signal)
        serving = asyncio.create_task(self._server.serve(sockets=self._http), name="http")
        url = _url(self._settings, self._http[0])
        gc.freeze()  # what start-up made stays; collections need not look at it
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        udp = ", ".join(self._agent.udp.addresses) or "off"
        store = self._settings.store if self._settings.mongo_url is None else self._store.kind
        _log.info("oplogd %s on %s, UDP %s, store %s", __version__, url, udp, store)
        systemd.notify("READY=1")
        if on_ready:
            on_ready(url)
        asked = asyncio.create_task(self._asked.wait(), name="signal")
        ends: set[asyncio.Future[Any]] = {asked, serving, self._agent.failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        systemd.notify("STOPPING=1")
        broken = self._agent.failed.done() or serving.done()
        code = await self._stop(serving)
        return EXIT_FAILED if broken else code

    def _on_signal(self) -> None:
        if self._asked.is_set():
            self._forced.set()
        self._asked.set()

    async def _stop(self, serving: asyncio.Task[None]) -> int:
        """Intake, queue, streams, store, in this order. A second signal or the deadline cuts it short."""
        seconds = self._settings.shutdown_timeout
        _log.info("stopping: storing %d queued operations", self._agent.queue.operations)
        orderly = asyncio.create_task(self._stop_in_order(serving), name="stop")
        forced = asyncio.create_task(self._forced.wait(), name="second signal")
        await asyncio.wait({orderly, forced}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if orderly.done():
            forced.cancel()
            orderly.result()
            _log.info("stopped")
            return EXIT_OK
        why = "a second signal" if forced.done() else f"--shutdown-timeout of {seconds:g} s is over"
        _log.error(
            "stopping at once, %s: %d operations are not stored, %d streams open",
            why,
            self._agent.queue.operations,
            len(self._agent.hub.consumers),
        )
        return EXIT_UNWRITTEN

    async def _stop_in_order(self, serving: asyncio.Task[None]) -> None:
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
    config = uvicorn.Config(
        ClientAddress(create_app(agent), os.environ),
        proxy_headers=False,  # ClientAddress judges them, after it has unmapped the peer's address
        http="httptools",
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
        raise StartupError(f"{files}: not a certificate and its key, both in PEM ({error})") from None
    return config


def _url(settings: Settings, sock: socket) -> str:
    scheme = "https" if settings.tls_certificate else "http"
    host, port = sock.getsockname()[:2]
    if host in ("::", "0.0.0.0"):
        host = "localhost"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def run(settings: Settings, on_ready: Callable[[str], None] | None = None) -> int:
    """``serve`` in a new event loop, uvloop's where there is one."""
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
