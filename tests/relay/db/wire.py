"""A proxy between an outbox and its server that loses answers and cuts connections."""

import asyncio
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Wire:
    """Passes bytes on to the server of a URL. Runs in the loop of the test."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._holds_new = False
        self._passes: set[asyncio.Event] = set()
        self._held = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    @property
    def url(self) -> str:
        """URL of the database through this proxy."""
        port = self._server.sockets[0].getsockname()[1]
        account = self._target.netloc.rpartition("@")[0]
        return self._target._replace(netloc=f"{account}@127.0.0.1:{port}").geturl()

    def hold(self, *, new: bool = False) -> None:
        """Keep the answers of the server back from now on. ``new``: on later connections, too."""
        self._holds_new = new
        for each in self._passes:
            each.clear()
        self._held.clear()

    async def held(self) -> None:
        """Wait until an answer is held back: the server has carried the request out."""
        await self._held.wait()

    def cut(self) -> None:
        """End all connections, and lose their answers. New ones work."""
        for each in self._open:
            each.transport.abort()
        self._open.clear()
        self._holds_new = False
        for passes in self._passes:
            passes.set()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passes = asyncio.Event()
        self._passes.add(passes)
        if not self._holds_new:
            passes.set()
        with suppress(OSError):
            answers, requests = await asyncio.open_connection(
                self._target.hostname, self._target.port
            )
            self._open |= {writer, requests}
            try:
                upwards = asyncio.create_task(self._copy(reader, requests))
                await self._copy(answers, writer, passes)
                await upwards
            finally:
                upwards.cancel()
                for each in (writer, requests):
                    each.transport.abort()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        passes: asyncio.Event | None = None,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if passes is not None and not passes.is_set():
                    self._held.set()
                    await passes.wait()
                target.write(data)
                await target.drain()
        target.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)
