"""A server that sends event streams piece by piece, and the consumer's side of a test."""

import asyncio
from collections.abc import Sequence

from oplogc import Consumer, Event, Operation
from tests.clients.chaos import Server
from tests.kits.agents.agent import DEADLINE

FAST = (0.01, 0.05)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
IDS = [f"545b55c7f095528dd0f386{number:02x}" for number in range(10)]


def operation(id_: str, type_: str = "video", event: str = "insert", number: int = 0) -> bytes:
    data = (
        f'{{"timestamp":"2014-11-06T11:04:39.041Z","parents":["é"],"type":"{type_}","id":"{id_}"}}'
    )
    return f"id: {IDS[number]}\nevent: {event}\ndata: {data}\n\n".encode()


class Streams(Server):
    """Answers each request with the next of ``streams`` and ends the connection; the last one is
    held open.

    ``asked`` are the requests' heads.
    """

    def __init__(
        self, *streams: Sequence[bytes] | bytes, head: bytes = HEAD + b"Connection: close\r\n\r\n"
    ) -> None:
        super().__init__(self._answer)
        self._streams = [[stream] if isinstance(stream, bytes) else stream for stream in streams]
        self._head = head
        self.asked: list[str] = []

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        last = len(self._streams) == 1
        pieces = self._streams[0] if last else self._streams.pop(0)
        writer.write(self._head)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if last:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    def last_ids(self) -> list[str]:
        names = [
            line.partition(": ")[2]
            for head in self.asked
            for line in head.split("\r\n")
            if "last-event" in line.lower()
        ]
        return names


async def take(consumer: Consumer, number: int) -> list[Event]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(consumer) for _ in range(number)]


def keys(events: list[Event]) -> list[str]:
    return [event.key if isinstance(event, Operation) else event.event for event in events]


def chunked(piece: bytes) -> bytes:
    return b"%x;name=value\r\n%s\r\n" % (len(piece), piece)
