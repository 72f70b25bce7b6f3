"""Serves the state of a pipe over HTTP, and asks another pipe for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from oplog_kit.http_server import Answer, serving
from oplog_kit.listen import Address, listen_address
from oplog_pipe.errors import ConfigError
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.status import PipeStatus
from oplog_pipe.watch.metrics import registry_of

# Seconds a command waits for the answer of a pipe.
_PATIENCE = 2.0
_EVERYWHERE = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}


@contextmanager
def listening(
    listen: str, status: Callable[[], PipeStatus], is_live: Callable[[], bool]
) -> Iterator[str]:
    """Serve /status, /live and /metrics until the end of the context. Return the address.

    Call it in the event loop. ``listen``: ``HOST:PORT``. Raises ConfigError.
    """
    registry = registry_of(status)

    def tell() -> Answer:
        return Answer(200, msgspec.json.encode(status()) + b"\n", "application/json")

    def live() -> Answer:
        return Answer(200, b"live\n") if is_live() else Answer(503, b"stopped\n")

    def metrics() -> Answer:
        return Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)

    paths = {"/status": tell, "/live": live, "/metrics": metrics}
    with ExitStack() as stack:
        try:
            address = stack.enter_context(serving(listen, paths, PROGRAM))
        except ValueError as error:
            raise ConfigError(f"listen: {error}") from None
        yield address


def ask(listen: str) -> PipeStatus | None:
    """Return the state of the pipe at an address. None: no pipe answers."""
    try:
        host, port = listen_address(listen)
        url = f"http://{Address(_EVERYWHERE.get(host, host), port)}/status"
        response = httpx.get(url, timeout=_PATIENCE, trust_env=False)
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=PipeStatus)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
