"""The connection under a stream: whether its consumer takes bytes, and the means to cut it off. No I/O of its own."""

from collections.abc import Callable, Mapping
from typing import Any, Self


class Outlet:
    """``writing``: a write is under way. It waits while the server's buffer is full.

    ``unsent`` tells how many bytes the server's buffer holds. Without ``abort`` the connection cannot be cut off.
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
        """Make one of the extensions that ``oplogd.web.connection.protocol`` adds to the scope of a request."""
        extensions = scope.get("extensions") or {}
        return cls(extensions.get("oplog.abort"), extensions.get("oplog.unsent"))

    def stalled(self, now: float, last_write: float) -> float:
        """For how many seconds the write begun at ``last_write`` has waited while no byte left, as far as it was asked."""
        if not self.writing:
            self._seen = None
            return 0.0
        seen = (last_write, self._unsent() if self._unsent else 0)
        if seen != self._seen:
            self._seen = seen
            self._since = now
        return now - self._since

    def abort(self) -> bool:
        """Cut the connection off, once; whether it was."""
        abort, self._abort = self._abort, None
        if abort is None:
            return False
        abort()
        return True
