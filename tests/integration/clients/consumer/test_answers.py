"""A consumer and other answers than streams: refusals, redirects, pauses and stalls."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count

import pytest

from oplogc import Consumer, Live, ProtocolError, RefusedError
from tests.kits.clients.streams import FAST, HEAD, take
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.servers.server import Server


@pytest.mark.parametrize(
    ("raw", "error", "sentence"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n",
            ProtocolError,
            "is it an agent",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            ProtocolError,
            "no content type: is it an agent",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ProtocolError, "is it an agent"),
        (answer("302 Found", ""), RefusedError, "Found"),
        (answer("302 Found", "", "Location: ftp://host/"), ProtocolError, "none of HTTP"),
        *(
            (answer(f"{status} No", '{"detail":"for a reason"}'), RefusedError, "for a reason")
            for status in (400, 401, 403, 404, 406, 410)
        ),
    ],
)
async def test_what_is_no_stream_is_told_at_once(
    raw: bytes, error: type[Exception], sentence: str
) -> None:
    with ScriptedServer([raw]) as server:
        async with Consumer(server.url) as consumer:
            with pytest.raises(error, match=sentence):
                await take(consumer, 1)
        assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_but_not_for_ever(status: int) -> None:
    stream = HEAD + b"Connection: close\r\n\r\nid: 5\nevent: live\n\n"
    step = answer(f"{status} Go", "", "Location: /further?x=1", "Connection: close")
    for steps, ends in ((20, True), (21, False)):
        with ScriptedServer([*[step] * steps, stream]) as server:
            async with Consumer(server.url) as consumer:
                if ends:
                    assert await take(consumer, 1) == [Live("5")]
                else:
                    with pytest.raises(ProtocolError, match="redirects without end"):
                        await take(consumer, 1)
            assert len(server.bodies) == 21


def _in_seconds(seconds: int) -> str:
    return str(seconds)


def _as_date(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize("form", [_in_seconds, _as_date])
async def test_retry_after_is_heeded_in_both_forms(form: Callable[[int], str]) -> None:
    began = time.time()
    stream = HEAD + b"Connection: close\r\n\r\nid: 5\nevent: live\n\n"
    with ScriptedServer([answer("503 Busy", "", f"Retry-After: {form(2)}"), stream]) as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            await take(consumer, 1)
    assert time.time() - began >= (2 if form is _in_seconds else 1)  # a date has whole seconds


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n", b""),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 100000\r\n\r\n", b""),
    ],
)
async def test_an_answer_without_end_is_given_up_in_time(head: bytes, drop: bytes) -> None:
    connections = count(1)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if next(connections) >= 3:  # again where this machine was too slow for the good answer
            writer.write(HEAD + b"\r\nid: 5\nevent: live\n\n")
            await reader.read()
        writer.write(head)
        while not reader.at_eof():
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(drop)

    with Server(handle) as server:
        async with Consumer(server.url, backoff=FAST, timeout=0.2) as consumer:
            assert await take(consumer, 1) == [Live("5")]
    assert next(connections) >= 4
