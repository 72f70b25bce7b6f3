"""A TCP proxy that cuts connections in the middle."""

import asyncio
from contextlib import suppress

from tests.kits.models.properties import chance
from tests.kits.servers.server import Server


class ChaosProxy(Server):
    """Passes bytes on to a port, and ends each connection after a random number of answered bytes.

    With few bytes the request arrives and its answer is lost.
    """

    def __init__(self, port: int, seed: int, most_bytes: int) -> None:
        super().__init__(self._pass_on)
        self.target = port
        self.cuts = 0
        self._choose = chance(seed)
        self._most_bytes = most_bytes

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        left = self._choose.randrange(1, self._most_bytes)
        upwards = asyncio.create_task(self._upwards(reader, up_writer))
        try:
            while chunk := await up_reader.read(min(left, 65536)):
                writer.write(chunk)
                await writer.drain()
                left -= len(chunk)
                if left <= 0:
                    self.cuts += 1
                    return
        finally:
            upwards.cancel()
            await asyncio.wait({upwards})
            up_writer.transport.abort()

    async def _upwards(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
