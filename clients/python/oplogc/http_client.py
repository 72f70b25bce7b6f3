"""The HTTP client beneath producers and consumers."""

from typing import Any

import httpx

from oplogc.errors import OplogError

_LOOK_AT = "look at proxy=, HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"


def http_client(proxy: str | None, **options: Any) -> httpx.AsyncClient:
    """Return a client without time-outs. Raises OplogError if the environment or ``proxy`` asks for the impossible."""
    try:
        return httpx.AsyncClient(proxy=proxy, timeout=None, **options)
    except (ValueError, httpx.InvalidURL):  # its words may hold a password
        reason = "the address of a proxy is not usable"
    except (ImportError, OSError) as error:
        reason = str(error)
    raise OplogError(f"HTTP cannot be set up: {reason}; {_LOOK_AT}")
