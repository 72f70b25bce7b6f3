"""The HTTP client beneath producers and consumers."""

import asyncio
import logging
import os
import ssl
from functools import lru_cache
from typing import Any, NamedTuple

import httpx

from oplogc.http.address import Endpoint
from oplogc.http.answers import MAX_BODY_BYTES, Answer, describe, read_answer
from oplogc.http.token import Bearer, TokenSource
from oplogc.wire.errors import OplogError

_LOOK_AT = "look at proxy=, HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
logger = logging.getLogger("oplogc")


def http_client(proxy: str | None, **options: Any) -> httpx.AsyncClient:
    """Return a client without time-outs. Raises OplogError for an unusable environment or proxy."""
    try:
        if options.get("verify", True) is True:
            file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
            options["verify"] = _tls_context(file, folder)
        return httpx.AsyncClient(proxy=proxy, timeout=None, **options)
    except (ValueError, httpx.InvalidURL):  # its words may hold a password
        reason = "the address of a proxy is not usable"
    except (ImportError, OSError) as error:
        reason = str(error)
    raise OplogError(f"HTTP cannot be set up: {reason}; {_LOOK_AT}")


@lru_cache(maxsize=1)
def _tls_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Return the usual context for all clients: to read certificates takes 25 ms."""
    return httpx.create_ssl_context()


class _UrlWithoutQuery(httpx.URL):
    """A URL whose text has no query: httpx logs the text at INFO, and a query may hold a token."""

    def __str__(self) -> str:
        return str(self.copy_with(query=None))


def hide_query(request: httpx.Request) -> httpx.Request:
    """Keep the query of a request out of httpx's log. It is sent all the same."""
    request.url = _UrlWithoutQuery(request.url)
    return request


class NoAnswer(NamedTuple):
    """An attempt without an answer. ``sent``: whether the agent may have read the request."""

    reason: str
    sent: bool = True


class Http:
    """Sends requests one by one, in one event loop. It follows no redirect.

    ``timeout``: seconds for a request in total, its answer included. ``max_body_bytes``: of an
    answer. ``server``: the program asked, see ``describe``. ``options``: of ``httpx.AsyncClient``.
    """

    def __init__(
        self,
        proxy: str | None,
        timeout: float,
        max_body_bytes: int = MAX_BODY_BYTES,
        server: str = "",
        **options: Any,
    ) -> None:
        self._proxy = proxy
        self._timeout = timeout
        self._max_body_bytes = max_body_bytes
        self._server = server
        self._options = options
        self._client: httpx.AsyncClient | None = None
        self._getting_token = asyncio.Lock()

    async def ask(
        self, method: str, to: Endpoint, content: bytes | None, headers: dict[str, str]
    ) -> Answer | NoAnswer:
        """Send a request once. After a 401 send it again with a fresh token of a function.

        Raises only errors of a token function: others would end the task of the caller.
        """
        if not isinstance(to.auth, TokenSource):
            return await self._send(method, to.url, to.auth, content, headers)
        if (token := await self._token(to.auth)) is None:
            return self._no_token()
        answer = await self._send(method, to.url, token, content, headers)
        if to.auth.is_function and isinstance(answer, Answer) and answer.status == 401:
            if (token := await self._token(to.auth, refused=token)) is None:
                return self._no_token()
            answer = await self._send(method, to.url, token, content, headers)
        return answer

    async def _token(self, source: TokenSource, refused: Bearer | None = None) -> Bearer | None:
        """Return a token for a request, None if it takes too long. Raises the function's errors."""
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit, self._getting_token:  # requests at the same time share a fresh token
                return await source.current(refused)
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    def _no_token(self) -> NoAnswer:
        return NoAnswer(f"no token within {self._timeout:g} s", False)

    async def _send(
        self,
        method: str,
        url: httpx.URL,
        auth: httpx.Auth | None,
        content: bytes | None,
        headers: dict[str, str],
    ) -> Answer | NoAnswer:
        try:
            if self._client is None:
                self._client = http_client(self._proxy, **self._options)
            async with asyncio.timeout(self._timeout):
                request = self._client.build_request(method, url, content=content, headers=headers)
                response = await self._client.send(hide_query(request), stream=True, auth=auth)
                try:
                    return await read_answer(response, self._max_body_bytes)
                finally:
                    await response.aclose()
        except TimeoutError:
            return NoAnswer(f"no answer within {self._timeout:g} s")
        except httpx.RequestError as error:
            unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)
            return NoAnswer(describe(error, self._server), not isinstance(error, unsent))
        except OplogError as error:
            return NoAnswer(str(error), False)
        except Exception as error:
            logger.debug("a request failed", exc_info=True)
            return NoAnswer(f"{type(error).__name__}: {error}")

    async def aclose(self) -> None:
        """Close the connections. A later request opens others."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()
