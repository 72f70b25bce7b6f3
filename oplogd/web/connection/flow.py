"""Control of a connection's reading, of its writing and of its end."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl


class HoldableFlow(FlowControl):
    """Flow control that does not resume reading while it is held.

    Its event exists only while writing is paused: most connections never need one.
    """

    __slots__ = ("_is_held", "_writable")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = self._is_held = False
        self._writable: asyncio.Event | None = None

    def hold(self) -> None:
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()

    async def drain(self) -> None:
        if self.write_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None


class Pipeline(list[Any]):
    """The requests that wait for their answers: a deque takes 600 bytes more on each connection."""

    __slots__ = ()

    def appendleft(self, request: Any) -> None:
        self.insert(0, request)

    def popleft(self) -> Any:
        return self.pop(0)


class LastAnswerTransport(asyncio.Transport):
    """Transport of the last request of a connection: ``close`` calls back instead of closing."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._close = close

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._close()
