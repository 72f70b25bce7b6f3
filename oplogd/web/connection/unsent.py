"""Bytes on their way to a client. uvicorn counts only its own buffer. The kernel holds
megabytes more.
"""

import asyncio
import struct
import sys

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes not taken by the client: in the server's buffer and, on Linux, in the
    kernel's.
    """
    unsent = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sys.platform != "linux" or sock is None or sock.fileno() < 0:
        return unsent
    import fcntl
    import termios

    (queued,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
    return unsent + int(queued)


class AnswerWatch:
    """Cuts off a client that takes no byte of an answer for ``seconds``. 0: never.

    Without this watch an answer would stay in memory for as long as the client likes. Streams have
    a watch of their own.
    """

    __slots__ = ("_handle", "_in_parts", "_loop", "_seconds")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._handle: asyncio.TimerHandle | None = None
        self._in_parts = False

    def expect_parts(self) -> None:
        """Watch the present answer before it is complete, too: it is sent in parts."""
        self._in_parts = True

    def pause(self, transport: asyncio.Transport) -> None:
        """Note that the next part of an answer waits until the client takes bytes."""
        if self._in_parts:
            self._watch(transport)

    def start(self, transport: asyncio.Transport) -> None:
        """Watch the bytes now in the transport, if they are many. The answer is complete.

        Call it for each answer: one can only be complete if the client has taken others.
        """
        self._in_parts = False
        self._watch(transport)

    def _watch(self, transport: asyncio.Transport) -> None:
        self.stop()
        # Right after a write, even a short answer to a fast client is in the buffer.
        if self._seconds and transport.get_write_buffer_size() > HIGH_WATER_LIMIT:
            self._look_again(transport)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look_again(self, transport: asyncio.Transport) -> None:
        unsent = unsent_bytes(transport)
        self._handle = self._loop.call_later(self._seconds, self._look, transport, unsent)

    def _look(self, transport: asyncio.Transport, before: int) -> None:
        self._handle = None
        if not transport.get_write_buffer_size():
            return
        if unsent_bytes(transport) >= before:
            transport.abort()
        else:
            self._look_again(transport)
