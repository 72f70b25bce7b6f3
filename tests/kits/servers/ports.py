"""Ports for servers that must be named before they start, or that start again at their port."""

import random
import socket

# The system takes the local ports of connections from above these.
_FIRST, _LAST = 20_000, 32_000


def free_port() -> int:
    """Return a port that is free for TCP and UDP.

    The system gives it to no connection, and this function to no other process.
    """
    while True:
        port = random.randrange(_FIRST, _LAST)
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            try:
                tcp.bind(("127.0.0.1", port))
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _take(port):
            return port


def _take(port: int) -> bool:
    """Return False if this or another process has taken the port."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0oplog-tests-port-{port}")  # an abstract name ends with its process
    except OSError:
        name.close()
        return False
    name.detach()  # it stays open until this process ends
    return True
