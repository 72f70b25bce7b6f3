"""Serves the state of a pipe over HTTP, and asks another pipe for it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import httpx
import msgspec

from oplog_kit.http_server import HttpAnswer, probes, serving
from oplog_kit.listen import Address, listen_address
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.status import PipeStatus
from oplog_pipe.watch.metrics import registry_of

# Seconds a command waits for the answer of a pipe.
_PATIENCE = 2.0
_EVERYWHERE = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}


def listening(
    listen: str, status: Callable[[], PipeStatus], is_live: Callable[[], bool]
) -> AbstractContextManager[str]:
    """Serve /status, /live and /metrics until the end of the context, which has the address.

    Enter it in the event loop. ``listen``: ``HOST:PORT``. Raises ConfigError.
    """

    def answer() -> HttpAnswer:
        return HttpAnswer(200, msgspec.json.encode(status()) + b"\n", "application/json")

    paths = {"/status": answer, **probes(registry_of(status), is_live)}
    return serving("listen", listen, paths, PROGRAM)


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
