"""Reads the datagrams of a socket: on Linux many in one call of the system, without own C code."""

import ctypes
import errno
import os
import socket
import sys
from typing import Any, Protocol

MAX_DATAGRAM = 65_536
# Datagrams of one call of the system. More save nothing, and cost memory.
AT_ONCE = 32
_ADDRESS_BYTES = 128

# Address as a socket returns it.
Address = tuple[Any, ...]


class Datagrams(Protocol):
    """The datagrams of one non-blocking socket."""

    sock: socket.socket

    @property
    def has_more(self) -> bool:
        """Whether the next one is in memory. Then the socket may be empty."""

    def receive(self) -> bytes | None:
        """Return the next datagram, None if none waits. Raises OSError."""

    def sender(self) -> Address:
        """Return the sender of the last datagram."""


def datagrams_of(sock: socket.socket) -> Datagrams:
    if sys.platform == "linux":
        libc = ctypes.PyDLL(None, use_errno=True)
        if hasattr(libc, "recvmmsg"):
            found = ManyAtOnce(sock, libc.recvmmsg)
            if found.is_allowed():
                return found
    return OneByOne(sock)


class OneByOne:
    has_more = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._sender: Address = ("", 0)

    def receive(self) -> bytes | None:
        try:
            raw, self._sender = self.sock.recvfrom(MAX_DATAGRAM)
        except (BlockingIOError, InterruptedError):
            return None
        return raw

    def sender(self) -> Address:
        return self._sender


class _Vector(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """``struct msghdr`` of Linux."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_bytes", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """``struct mmsghdr``."""

    _fields_ = (("header", _Header), ("received", ctypes.c_uint))


class ManyAtOnce:
    """``recvmmsg`` holds the GIL: it does not wait, and takes less time than to get the GIL again.

    ``recvfrom`` lets it go for each datagram, and makes an address of each.
    """

    def __init__(self, sock: socket.socket, recvmmsg: Any) -> None:
        self.sock = sock
        self._recvmmsg = recvmmsg
        self._messages = (_Message * AT_ONCE)()
        self._vectors = (_Vector * AT_ONCE)()
        self._buffers = [(ctypes.c_char * MAX_DATAGRAM)() for _ in range(AT_ONCE)]
        self._addresses = [(ctypes.c_char * _ADDRESS_BYTES)() for _ in range(AT_ONCE)]
        self._views = [memoryview(each).cast("B") for each in self._buffers]
        for index, message in enumerate(self._messages):
            self._vectors[index].base = ctypes.addressof(self._buffers[index])
            self._vectors[index].size = MAX_DATAGRAM
            header = message.header
            header.vectors = ctypes.pointer(self._vectors[index])
            header.vector_count = 1
            header.name = ctypes.addressof(self._addresses[index])
            header.name_bytes = _ADDRESS_BYTES  # those of this socket have one length
        # The numbers of bytes: to read them as attributes takes longer than the call.
        words = memoryview(self._messages).cast("B").cast("I")
        size, first = ctypes.sizeof(_Message) // 4, _Message.received.offset // 4
        self._received = words[first::size]
        self._next = self._count = 0

    def is_allowed(self) -> bool:
        """Return whether the system takes the call: a filter of a container may refuse it."""
        return self._call(0) == 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)

    @property
    def has_more(self) -> bool:
        return self._next < self._count

    def receive(self) -> bytes | None:
        if self._next == self._count and not self._fill():
            return None
        index = self._next
        self._next = index + 1
        return bytes(self._views[index][: self._received[index]])

    def _fill(self) -> bool:
        """Receive the datagrams that wait. Return whether there is one."""
        self._next = self._count = 0
        count = self._call(AT_ONCE)
        if count < 0:
            code = ctypes.get_errno()
            if code in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR):
                return False
            raise OSError(code, os.strerror(code))
        self._count = count
        return bool(count)

    def _call(self, most: int) -> int:
        """Return how many datagrams were received, at most so many; -1: see ``errno``."""
        fd, flags = self.sock.fileno(), socket.MSG_DONTWAIT
        return int(self._recvmmsg(fd, self._messages, most, flags, None))

    def sender(self) -> Address:
        index = self._next - 1
        raw = bytes(self._addresses[index])
        port = int.from_bytes(raw[2:4], "big")
        if self.sock.family == socket.AF_INET:
            return socket.inet_ntop(socket.AF_INET, raw[4:8]), port
        host = socket.inet_ntop(socket.AF_INET6, raw[8:24])
        scope = int.from_bytes(raw[24:28], sys.byteorder)
        return host, port, 0, scope
