"""The step ``fetch``: replaces the data of messages by the objects at their ``ref`` addresses."""

import asyncio
import zlib
from collections.abc import Sequence
from contextlib import aclosing

import httpx

from oplog_kit.tls import tls_context
from oplog_pipe.errors import TransformError
from oplog_pipe.message import Message
from oplog_pipe.model.reasons import of_status
from oplog_pipe.model.settings import BatchLimits, FetchStep
from oplog_pipe.sinks.parts.calls import basic_auth
from oplogc.follow.stream import origin
from oplogc.http.address import shown
from oplogc.http.answers import describe, printable
from oplogc.http.client import hide_query, http_client

MAX_OBJECT_BYTES = 16_000_000
_MAX_REDIRECTS = 5
# Requests for one object, if the server is busy or ends the connection: it may fail now and then.
_ATTEMPTS = 3
# Of an answer without an object; if it is longer, the connection is not used again.
_MAX_REST_BYTES = 64_000
# Idle connections are closed before the server does so: a request at that moment has no answer.
_IDLE_SECONDS = 3.0
_PORTS = {"http": 80, "https": 443}
_GONE = frozenset({404, 410})
_BUSY = frozenset({408, 425, 429})
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip"}


class Fetcher:
    """Fetches the objects of several messages at a time, over persistent connections.

    User and password of the step take precedence over those of an address. Redirects are followed
    within scheme, host and port of the address. Hosts the step does not allow are refused.

    ``max_bytes``: of an object. ``together``: bytes of one call; requests under way come on top.
    Raises ValueError for an unusable file.
    """

    def __init__(
        self, step: FetchStep, max_bytes: int = MAX_OBJECT_BYTES, together: int = BatchLimits.bytes
    ) -> None:
        self._step = step
        self._max_bytes = max_bytes
        self._together = together
        # By offset and address; None: the object is gone. Of the last call, for the next one.
        self._fetched: dict[tuple[int, str], bytes | None] = {}
        self._auth = basic_auth(step.user, step.password)
        self._verify = tls_context(step.tls.ca_file, step.tls.cert_file, step.tls.key_file)
        self._client: httpx.AsyncClient | None = None
        self._runner = asyncio.Runner()
        self._closed = False

    def __call__(self, messages: Sequence[Message]) -> list[Message | None]:
        """Set ``data`` of the first messages, and return them in their order.

        None stands for a missing object. Deletions stay as they are. The result ends before the
        first failure; TransformError if it is the first message. A later call asks only for the
        other objects.
        """
        return self._runner.run(self._all(messages))

    def close(self) -> None:
        """Close the connections. Nothing can be fetched any more."""
        if not self._closed:
            self._closed = True
            if self._client is not None:
                self._runner.run(self._client.aclose())
            self._runner.close()

    async def _all(self, messages: Sequence[Message]) -> list[Message | None]:
        first = messages[0].offset
        known = {key: body for key, body in self._fetched.items() if key[0] >= first}
        self._fetched = known
        found: list[Message | None] = []
        errors: dict[int, TransformError] = {}
        places = iter(range(len(messages)))
        size = fetched = 0

        def is_ill() -> bool:
            """Return whether others would fail as well."""
            many = len(errors) >= self._step.concurrency and len(errors) > fetched
            return many or any(each.transient and not each.of_object for each in errors.values())

        async def work() -> None:
            nonlocal size, fetched
            while size < self._together and not is_ill():
                if (place := next(places, None)) is None:
                    return
                found.append(message := messages[place])
                if message.op == "delete":
                    continue
                try:
                    url = self._address(message)
                    key = message.offset, str(url)
                    if key not in known:
                        body = await self._fetch(url)
                        fetched += 1
                    else:
                        body = known[key]
                    if body is None:
                        found[place] = None
                    else:
                        self._put(message, url, body)
                        size += len(body)
                    known[key] = body
                except TransformError as error:
                    errors[place] = error

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._step.concurrency, len(messages))):
                group.create_task(work())
        if 0 in errors:
            errors[0].index = 0
            raise errors[0]
        return found[: min(errors, default=len(found))]

    def _address(self, message: Message) -> httpx.URL:
        """Return the address of an object. Raises TransformError."""
        data = message.data
        ref = data.get("ref") if isinstance(data, dict) else None
        if not isinstance(ref, str):
            reason = f"fetch: {message!r} has no ref: start the agent with --object-url"
            raise TransformError(reason)
        try:
            url = httpx.URL(ref)
        except (httpx.InvalidURL, ValueError):
            raise TransformError(f"fetch: the ref of {message!r} is no address") from None
        if not self._may_ask(url):
            raise TransformError(f"{_place(url)}: is on none of the hosts of fetch")
        return url

    def _put(self, message: Message, url: httpx.URL, body: bytes) -> None:
        try:
            message.set_json(body)
        except (ValueError, RecursionError):
            raise TransformError(f"{_place(url)}: the answer is no JSON") from None

    async def _fetch(self, url: httpx.URL) -> bytes | None:
        """Return the body of an object; None if there is none. Raises TransformError."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._ask(url, _place(url))
            except TransformError as error:
                if not error.transient or isinstance(error.__context__, TimeoutError):
                    raise
        return await self._ask(url, _place(url))

    def _may_ask(self, url: httpx.URL) -> bool:
        hosts = self._step.hosts
        if hosts is None:
            return True
        host = url.raw_host.decode()
        host = f"[{host}]" if ":" in host else host
        return host in hosts or f"{host}:{url.port or _PORTS.get(url.scheme)}" in hosts

    async def _ask(self, url: httpx.URL, place: str) -> bytes | None:
        """Return the body of an object; None if there is none. Raises TransformError."""
        try:
            async with asyncio.timeout(self._step.timeout):
                return await self._get(url, place)
        except TimeoutError:
            raise _of_object(f"{place}: no answer within {self._step.timeout:g} s") from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise TransformError(f"{place}: is no address of HTTP") from None
        except httpx.ConnectError as error:  # no object of this server can be had
            raise TransformError(f"{place}: {describe(error)}", transient=True) from None
        except httpx.RequestError as error:
            raise _of_object(f"{place}: {describe(error)}") from None
        except TransformError:
            raise
        except Exception as error:  # such as a port or a name of a host no look-up takes
            raise TransformError(f"{place}: {type(error).__name__}") from None

    async def _get(self, url: httpx.URL, place: str) -> bytes | None:
        """Return the body of an object; None if there is none."""
        if self._client is None:
            limits = httpx.Limits(
                max_keepalive_connections=self._step.concurrency, keepalive_expiry=_IDLE_SECONDS
            )
            self._client = http_client(None, verify=self._verify, limits=limits)
        auth = self._auth
        if auth is None and url.userinfo:
            auth = httpx.BasicAuth(url.username, url.password)
        request = self._client.build_request("GET", url.copy_with(userinfo=b""), headers=_HEADERS)
        for _ in range(_MAX_REDIRECTS + 1):
            sending = self._client.send(hide_query(request), stream=True, auth=auth)
            async with aclosing(await sending) as response:
                following = response.next_request
                if following is None:
                    return await self._body(response, place)
            if origin(following.url) != origin(request.url):
                raise TransformError(f"{place}: redirects to another host: {shown(following.url)}")
            following.url = following.url.copy_with(userinfo=b"")
            request, auth = following, None  # the header with the password is in the request
        raise TransformError(f"{place}: redirects without end")

    async def _body(self, response: httpx.Response, place: str) -> bytes | None:
        status = response.status_code
        if status in _GONE:
            size = 0
            async for chunk in response.aiter_raw():  # the connection is used again
                size += len(chunk)
                if size > _MAX_REST_BYTES:
                    break
            return None
        if status != 200:
            hint = "; look at user and password of fetch" if status in (401, 403) else ""
            text = f"{place}: {of_status(status)}{hint}"
            raise _of_object(text) if status >= 500 or status in _BUSY else TransformError(text)
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("gzip", "identity"):
            raise TransformError(f"{place}: the answer has the encoding {printable(encoding)}")
        # Not httpx's: from a few kilobytes it would make as many megabytes before they are counted.
        unzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding == "gzip" else None
        body = bytearray()
        async for chunk in response.aiter_raw():
            room = self._max_bytes + 1 - len(body)
            try:
                body += chunk if unzip is None else unzip.decompress(chunk, room)
            except zlib.error:
                raise TransformError(f"{place}: the answer is no gzip") from None
            if len(body) > self._max_bytes:
                raise TransformError(f"{place}: the object has more than {self._max_bytes} bytes")
        return bytes(body)


def _place(url: httpx.URL) -> str:
    return f"fetch: {shown(url)}"


def _of_object(text: str) -> TransformError:
    error = TransformError(text, transient=True)
    error.of_object = True
    return error
