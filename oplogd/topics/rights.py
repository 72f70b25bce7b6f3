"""The one place asked for a right. No I/O."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, TypeVar

# The type of value to identify a client: a request.
_Client = TypeVar("_Client")


class Right(Enum):
    """An action of a client on a topic, or on the topics of a namespace."""

    # Show, list, poll and stream.
    READ = auto()
    # Create, change, delete and publish.
    WRITE = auto()


class Rights(Generic[_Client]):
    """Today a right is for all topics. ``read`` and ``write`` raise for clients without it."""

    def __init__(self, read: Callable[[_Client], None], write: Callable[[_Client], None]) -> None:
        self._checks = {Right.READ: read, Right.WRITE: write}

    def require(
        self, client: _Client, right: Right, namespace: str, topic: str | None = None
    ) -> None:
        """Raise unless the client has the right. ``topic`` None: for the whole namespace."""
        self._checks[right](client)
