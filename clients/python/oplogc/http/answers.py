"""Answers of an agent, without event streams."""

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeGuard

import httpx

from oplogc.http.address import shown
from oplogc.http.backoff import retry_after

MAX_BODY_BYTES = 1024 * 1024
"""An agent's answers are a few KiB. Of a longer one the rest is not read."""

AGENT = "oplogd"
"""The program of an agent."""

_MAX_DETAIL = 500
_TRY_AGAIN = frozenset({408, 425, 429})
# Errors with bytes or an address of an answer.
_QUOTES_ANSWER = re.compile(r"bytearray|b'|b\"|location header", re.IGNORECASE)


class Answer(NamedTuple):
    status: int
    body: bytes
    url: str
    """The address asked, without query and credentials."""
    reason: str = ""
    """The status in words."""
    retry_after: float = 0.0
    """Seconds."""
    location: str = ""
    """The address to which the answer redirects."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Names in lower case. Look-ups in the headers of a real answer ignore case."""
    authorized: bool = False
    """Whether the request had a password or a token."""
    had_token: bool = False

    @property
    def passes(self) -> bool:
        """Whether the agent refuses for a passing cause."""
        return self.status >= 500 or self.status in _TRY_AGAIN

    def json(self) -> object:
        """The body as JSON. Raises ValueError, also for NaN, Infinity and a nesting too deep."""
        try:
            return json.loads(self.body, parse_constant=_refuse_constant)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def members(self) -> dict[str, Any]:
        """The members of the body. Empty unless the body is a JSON object."""
        try:
            document = self.json()
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}

    def detail(self) -> str:
        """The problem document's sentence, else the status in words."""
        detail = self.members().get("detail")
        if not isinstance(detail, str) or not detail.strip():
            detail = self.reason or "the agent answered without words"
        return printable(detail[:_MAX_DETAIL])

    def sentence(self) -> str:
        return f"{self.detail()} (HTTP {self.status})"


async def read_answer(response: httpx.Response, max_bytes: int = MAX_BODY_BYTES) -> Answer:
    """Read an answer's body, little more than ``max_bytes`` of it. Raises httpx.RequestError."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:  # type: ignore[type-var]  # httpx: it is a generator
        async for chunk in chunks:
            body += chunk
            if len(body) > max_bytes:
                break
    target = response.next_request
    return Answer(
        response.status_code,
        bytes(body),
        shown(response.url),
        response.reason_phrase,
        retry_after(response.headers.get("retry-after")),
        shown(target.url) if target is not None else "",
        response.headers,
        "authorization" in response.request.headers,
        response.request.headers.get("authorization", "").startswith("Bearer "),
    )


def password_problem(detail: str, authorized: bool, option: str, had_token: bool = False) -> str:
    """Return a sentence for a 401.

    ``detail``: the agent's sentence. ``authorized``: whether the request had a password or a token.
    ``option``: name of the option for a password. ``had_token``: whether it had a token.
    """
    advice = f"wrong password: look at {option}"
    if had_token:
        advice = "the token was refused: look at token"
    elif not authorized:
        advice = f"the agent needs a password: give {option}"
    return f"{advice}; the agent says: {detail}"


def no_token(error: Exception) -> str:
    """Return why a token function gave no token."""
    return printable(f"no token: {type(error).__name__}: {error}"[:_MAX_DETAIL])


def describe(error: httpx.RequestError, server: str = "") -> str:
    """Return why a request has no answer. ``server``: named if nothing listens there."""
    if isinstance(error, httpx.ConnectError):
        found = [each for each in _roots(error) if _has_number(each)]
        if any(isinstance(each, ConnectionRefusedError) for each in found):
            return "connection refused" + (f": is {server} running there?" if server else "")
        if found:  # the libraries between say only: all attempts failed
            return os.strerror(found[0].errno or 0).lower()
    if isinstance(error, httpx.RemoteProtocolError) and _QUOTES_ANSWER.search(str(error)):
        return "the answer is not one of HTTP"
    return str(error) or type(error).__name__


def _roots(error: BaseException) -> Iterator[BaseException]:
    """Yield the first causes of an error: one for each address."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _roots(each)
    elif cause := error.__cause__ or error.__context__:
        yield from _roots(cause)
    else:
        yield error


def _has_number(error: BaseException) -> TypeGuard[OSError]:
    """Return whether an error has a number of the operating system."""
    others = (ssl.SSLError, socket.gaierror)  # with numbers of their own
    return isinstance(error, OSError) and bool(error.errno) and not isinstance(error, others)


def printable(text: str) -> str:
    """``text`` with all control characters of a terminal escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
