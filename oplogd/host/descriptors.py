"""File descriptors of the process: each connection of a client needs one, and so does the store."""

import asyncio
import errno
import logging
import os
import sys
from ctypes import c_int64

from oplogd.clock import Clock
from oplogd.host.logs import Episode

# Descriptors clients never get: the connections to the store open when they are needed.
SPARE = 64

_LOOK_SECONDS = 1.0

_QUIET_SECONDS = 60.0
_FOLDER = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"

logger = logging.getLogger("oplogd.http")


class Descriptors:
    """Keeps descriptors free for the store. ``refused`` counts connections closed to keep them."""

    def __init__(self, refused: c_int64 | None = None) -> None:
        self._refused = c_int64() if refused is None else refused
        self._short = Episode(
            logger,
            "closing new connections: only a few file descriptors are free",
            quiet=_QUIET_SECONDS,
        )

        self._used_up = Episode(
            logger,
            "no file descriptor is free: the system closes new connections",
            quiet=_QUIET_SECONDS,
        )

    @property
    def refused(self) -> int:
        return self._refused.value

    async def watch(self, clock: Clock) -> None:
        """Log the times without a free descriptor, until cancelled.

        With TLS a connection is not judged before its handshake, and may never begin one.
        """
        while True:
            await clock.sleep(_LOOK_SECONDS)
            if are_used_up():
                self._used_up.occurred(detail=_advice(file_limit()))
            else:
                self._used_up.end()

    def admits(self, number: int) -> bool:
        """Return whether a client may keep a new descriptor. Count it as refused if not.

        The system gives the lowest free number, so all below this one are in use.
        """
        limit = file_limit()
        if limit is None or number < limit - min(SPARE, limit // 4):
            if self._short.active:
                self._short.end()
            return True
        self._refused.value += 1
        self._short.occurred(detail=_advice(limit))
        return False

    async def members(self) -> dict[str, int | None]:
        """Return the number of open descriptors and their limit. None: the system does not tell."""
        return {"open": await asyncio.to_thread(_count), "limit": file_limit()}


def file_limit() -> int | None:
    """Return how many descriptors the process may have open. None: there is no limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def are_used_up() -> bool:
    """Return whether no file can be opened because there is no free descriptor."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _count() -> int | None:
    try:
        return len(os.listdir(_FOLDER)) - 1  # without the one that lists the folder
    except OSError as error:
        return file_limit() if error.errno == errno.EMFILE else None


def _advice(limit: int | None) -> str:
    return f"the limit is {limit or 0:,}; raise it (ulimit -n, LimitNOFILE of systemd)"
