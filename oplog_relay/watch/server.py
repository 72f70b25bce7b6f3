"""Serves /metrics and /live over HTTP."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from oplog_kit import http_server
from oplog_kit.http_server import Answer
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.exits import PROGRAM


@contextmanager
def serving(listen: str, registry: CollectorRegistry, is_live: Callable[[], bool]) -> Iterator[str]:
    """Serve until the end of the context. Return the address. Call it in the event loop.

    ``listen``: ``HOST:PORT``. Raises ConfigError.
    """
    paths = {
        "/metrics": lambda: Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST),
        "/live": lambda: Answer(200, b"live\n") if is_live() else Answer(503, b"stopped\n"),
    }
    with ExitStack() as stack:
        try:
            address = stack.enter_context(http_server.serving(listen, paths, PROGRAM))
        except ValueError as error:
            raise ConfigError(f"metrics_listen: {error}") from None
        yield address
