"""The HTTP server of an agent: uvicorn, with its settings."""

import contextlib
import os
from collections.abc import Iterator

import uvicorn

from oplogd import __version__
from oplogd.agent import Agent
from oplogd.config.settings import Settings
from oplogd.errors import SettingError
from oplogd.store import Store
from oplogd.web.app import Web, create_web
from oplogd.web.connection.edge import Edge
from oplogd.web.connection.protocol import protocol_class

# How long a stop waits for a stream whose consumer does not read.
_CONSUMER_SECONDS = 2


class HttpServer(uvicorn.Server):
    """A server whose answers all name the store, as soon as its identity is known.

    It leaves signals to ``Stop``: the queue is stored before the server stops. Raises SettingError
    if the certificate or its key cannot be used.
    """

    def __init__(self, settings: Settings, agent: Agent) -> None:
        self._agent = agent
        self._web = create_web(agent)
        config = _uvicorn_config(settings, agent, self._web)
        super().__init__(config)
        self._store: Store = agent.store
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

    def start_tasks(self) -> None:
        """Start the tasks of the endpoints. The agent ends them."""
        for name, work in self._web.tasks.items():
            self._agent.run(name, work())

    def leave_port(self) -> None:
        """Take no more connections. The open ones go on."""
        for server in self.servers:
            server.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_config(settings: Settings, agent: Agent, web: Web) -> uvicorn.Config:
    config = uvicorn.Config(
        Edge(web.app, os.environ),
        proxy_headers=False,  # Edge reads them, after it has unmapped the peer's address
        http=protocol_class(settings, agent.descriptors, web.short_way),
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
