"""Answers of an agent that are no event stream."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import NamedTuple, NoReturn

import httpx

from oplogc.address import shown
from oplogc.backoff import retry_after

MAX_BODY_BYTES = 1024 * 1024
"""An agent's answers are a few KiB. Of a longer one the rest is not read."""

_MAX_DETAIL = 500
_TRY_AGAIN = frozenset({408, 425, 429})


class Answer(NamedTuple):
    status: int
    body: bytes
    url: str
    """The address asked, as it may be shown."""
    reason: str = ""
    """The status in words."""
    retry_after: float = 0.0
    """Seconds."""
    location: str = ""
    """The address to which the answer redirects."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Names in lower case; look-ups in the headers of an answer that was read ignore case."""

    @property
    def passes(self) -> bool:
        """Whether the agent refuses for a cause that passes by itself."""
        return self.status >= 500 or self.status in _TRY_AGAIN

    def json(self) -> object:
        """The body as JSON. Raises ValueError, also for NaN, Infinity and a nesting too deep."""
        try:
            return json.loads(self.body, parse_constant=_refuse_constant)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def detail(self) -> str:
        """The problem document's sentence, else the status in words."""
        try:
            document = self.json()
        except ValueError:
            document = None
        detail = document.get("detail") if isinstance(document, dict) else None
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
    )


def describe(error: httpx.RequestError) -> str:
    return str(error) or type(error).__name__


def printable(text: str) -> str:
    """``text`` with every character escaped that could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
