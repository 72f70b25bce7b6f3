"""Objects with a thread, closed at the end of the program if they are still open."""

import atexit
import logging
import time
import warnings
import weakref
from typing import Protocol

from oplogc.wire.errors import FlushError

EXIT_SECONDS = 5.0
"""How long all open objects may flush in total at the interpreter's end."""

logger = logging.getLogger("oplogc")


class Open(Protocol):
    def close(self, timeout: float | None) -> None: ...

    def flush_at_exit(self, timeout: float) -> None: ...


open_ones: "weakref.WeakSet[Open]" = weakref.WeakSet()


def close_at_exit(each: Open, timeout: float, lost: str, warning: str) -> None:
    """Close an object. ``lost``: text about lost entries. ``warning``: empty if there are none."""
    try:
        each.close(timeout)
    except FlushError as error:
        logger.error("%d %s. %s", error.pending, lost, error)
    if warning:
        warnings.warn(warning, ResourceWarning, stacklevel=1)


@atexit.register
def _flush_all() -> None:
    until = time.monotonic() + EXIT_SECONDS
    for each in list(open_ones):
        each.flush_at_exit(max(0.0, until - time.monotonic()))
