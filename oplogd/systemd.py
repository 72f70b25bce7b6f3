"""Tells systemd how the service is doing."""

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send `state`, such as READY=1 or STOPPING=1, where NOTIFY_SOCKET says; nothing happens without it.

    A failure is swallowed: an agent does not stop because nobody hears it.
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
