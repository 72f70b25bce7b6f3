"""The number of objects that a copy will bring, as an agent says. A pipe works without it."""

import ssl
from collections.abc import Sequence

import msgspec

from oplogc.address import base_endpoint, below
from oplogc.answers import Answer
from oplogc.http_client import Http

_TIMEOUT_SECONDS = 5.0


class _Store(msgspec.Struct):
    live: int | None = None


class _Status(msgspec.Struct):
    store: _Store = msgspec.field(default_factory=_Store)


_read = msgspec.json.Decoder(_Status).decode


async def copy_total(
    urls: Sequence[str], password: str | None, verify: ssl.SSLContext | bool
) -> int | None:
    """Return the number of objects in the agents' store. None: no agent says it."""
    http = Http(None, _TIMEOUT_SECONDS, verify=verify)
    try:
        for url in urls:
            endpoint = below(base_endpoint(url, password), "/status")
            answer = await http.ask("GET", endpoint, None, {"Accept": "application/json"})
            if isinstance(answer, Answer) and answer.status == 200:
                try:
                    return _read(answer.body).store.live
                except msgspec.DecodeError:
                    return None
        return None
    finally:
        await http.aclose()
