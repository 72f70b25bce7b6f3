"""The HTTP client beneath producers and consumers."""

from typing import Any

import httpx

from oplogc.errors import OplogError

_LOOK_AT = "look at proxy=, HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"


def http_client(proxy: str | None, **options: Any) -> httpx.AsyncClient:
    """Return a client without time-outs.

    Raises OplogError if the environment or ``proxy`` asks for the impossible.
    """
    try:
        return httpx.AsyncClient(proxy=proxy, timeout=None, **options)
    except (ValueError, httpx.InvalidURL):  # its words may hold a password
        reason = "the address of a proxy is not usable"
    except (ImportError, OSError) as error:
        reason = str(error)
    raise OplogError(f"HTTP cannot be set up: {reason}; {_LOOK_AT}")


class _UrlWithoutQuery(httpx.URL):
    """A URL whose text leaves out the query: httpx logs the text at INFO, and a query may hold a
    token.
    """

    def __str__(self) -> str:
        return str(self.copy_with(query=None))


def hide_query(request: httpx.Request) -> httpx.Request:
    """Keep the query of a request out of httpx's log. It is sent all the same."""
    request.url = _UrlWithoutQuery(request.url)
    return request
