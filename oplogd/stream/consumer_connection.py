"""The connection of a consumer, as the consumer and the hub use it."""

from typing import Protocol


class Connection(Protocol):
    """Takes the bytes of a consumer."""

    __slots__ = ()

    @property
    def is_full(self) -> bool:
        """Whether nothing is written until the client takes bytes."""

    def go_on(self) -> None:
        """Write the next bytes of the consumer, as many as there are room for."""

    def stalled_seconds(self, now: float, last_write: float) -> float:
        """Return for how many seconds the client has taken no byte since the connection is full.

        Bytes sent between two calls are noticed at the second one. Times are monotonic.
        """

    def abort(self) -> bool:
        """Cut the connection off. Return whether this call did."""


class NotConnected(Connection):
    """Stands for a connection before its answer begins, and after its end."""

    __slots__ = ()

    is_full = False

    def go_on(self) -> None:
        """Do nothing."""

    def stalled_seconds(self, now: float, last_write: float) -> float:
        return 0.0

    def abort(self) -> bool:
        return False


NOT_CONNECTED = NotConnected()
