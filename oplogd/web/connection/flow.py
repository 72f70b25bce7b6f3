"""Control of a connection's reading and of its end."""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl


class HoldableFlow(FlowControl):
    """Flow control that does not resume reading while it is held."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False

    def hold(self) -> None:
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()


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
