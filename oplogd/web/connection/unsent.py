"""Bytes that are on their way to a client. uvicorn counts only its own buffer; the kernel holds
megabytes more.
"""

import asyncio
import struct
import sys


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that the client has not taken: in the server's buffer and, on Linux, in the
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
