"""A server that sends event streams piece by piece, and the consumer's side of a test."""

import asyncio
from collections.abc import Sequence

from oplogc import Consumer, Event, Operation
from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.scripted import End, ScriptedServer

FAST = (0.01, 0.05)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
IDS = [f"545b55c7f095528dd0f386{number:02x}" for number in range(10)]


def operation(id_: str, type_: str = "video", event: str = "insert", number: int = 0) -> bytes:
    data = (
        f'{{"timestamp":"2014-11-06T11:04:39.041Z","parents":["é"],"type":"{type_}","id":"{id_}"}}'
    )
    return f"id: {IDS[number]}\nevent: {event}\ndata: {data}\n\n".encode()


class Streams(ScriptedServer):
    """Answers each request with the next of ``streams``, and holds the last one open."""

    def __init__(
        self, *streams: Sequence[bytes] | bytes, head: bytes = HEAD + b"Connection: close\r\n\r\n"
    ) -> None:
        pieces = [[stream] if isinstance(stream, bytes) else [*stream] for stream in streams]
        *ended, held = ([head, *stream] for stream in pieces)
        super().__init__([*ended, [*held, End.HOLD]])

    def last_ids(self) -> list[str]:
        """Return ``Last-Event-ID`` of the requests that have it."""
        found = (request.headers.get("last-event-id") for request in self.requests)
        return [each for each in found if each is not None]


async def take(consumer: Consumer, number: int) -> list[Event]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(consumer) for _ in range(number)]


def keys(events: list[Event]) -> list[str]:
    return [event.key if isinstance(event, Operation) else event.event for event in events]


def chunked(piece: bytes) -> bytes:
    return b"%x;name=value\r\n%s\r\n" % (len(piece), piece)
