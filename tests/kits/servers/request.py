"""Requests of HTTP/1.1, as a scripted server reads them."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Request:
    """``head``: the request line and the headers. Names in ``headers`` are in lower case."""

    head: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def method(self) -> str:
        return self.head.split(" ", 1)[0]

    @property
    def target(self) -> str:
        return self.head.split(" ", 2)[1]

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query)

    @property
    def verb(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def json(self) -> Any:
        """Return the value of the body, and an empty object for no body."""
        return json.loads(self.body or b"{}")


async def read_head(reader: asyncio.StreamReader) -> Request:
    """Raise IncompleteReadError if the client closes the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    headers: dict[str, str] = {}
    for line in filter(None, head.split("\r\n")[1:]):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(head, headers)


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readline()
    return body
