"""The connection under a stream: detects that it takes no bytes, and cuts it off. No own I/O."""

from collections.abc import Callable, Mapping
from typing import Any, Self


class Connection:
    """``writing``: a write is under way. It waits while the server's buffer is full.

    ``unsent`` returns the number of bytes in the server's buffer. Without ``abort`` the connection
    cannot be cut off.
    """

    __slots__ = ("_abort", "_seen", "_since", "_unsent", "writing")

    def __init__(
        self, abort: Callable[[], None] | None = None, unsent: Callable[[], int] | None = None
    ) -> None:
        self.writing = False
        self._abort = abort
        self._unsent = unsent
        self._seen: tuple[float, int] | None = None
        self._since = 0.0

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> Self:
        """Use the extensions ``oplog.abort`` and ``oplog.unsent`` of an ASGI scope, if present."""
        extensions = scope.get("extensions") or {}
        return cls(extensions.get("oplog.abort"), extensions.get("oplog.unsent"))

    def stalled_seconds(self, now: float, last_write: float) -> float:
        """Return for how many seconds the write begun at ``last_write`` has sent no byte.

        Bytes that left between two calls are noticed at the second one. Times are monotonic.
        """
        if not self.writing:
            self._seen = None
            return 0.0
        seen = (last_write, self._unsent() if self._unsent else 0)
        if seen != self._seen:
            self._seen = seen
            self._since = now
        return now - self._since

    def abort(self) -> bool:
        """Cut the connection off. Return whether this call did."""
        abort, self._abort = self._abort, None
        if abort is None:
            return False
        abort()
        return True
