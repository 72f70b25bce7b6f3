"""Notifies systemd of the state of the service."""

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send ``state``, such as READY=1, to the socket in NOTIFY_SOCKET if it is set.

    Failures are ignored: the agent works without notifications, too.
    """
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    # A leading @ stands for the NUL byte of Linux's abstract names.
    address = "\0" + name[1:] if name.startswith("@") else name
    # ValueError: a NUL inside the name. AttributeError: a platform without AF_UNIX.
    with (
        contextlib.suppress(OSError, ValueError, AttributeError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        sender.settimeout(1.0)
        sender.sendto(state.encode(), address)
