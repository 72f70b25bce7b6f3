"""Sends a consumer's stream into its connection."""

import logging
from typing import Protocol

from oplogd.errors import StoreUnavailableError
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.consumer_connection import NOT_CONNECTED, Connection
from oplogd.stream.hub import Hub

_RETRY_SECONDS = 1.0

logger = logging.getLogger("oplogd.stream")


class Outlet(Protocol):
    """The body of an answer. It calls ``go_on`` when it is no longer full, ``close`` at its end."""

    @property
    def is_full(self) -> bool:
        """Whether the server's buffer is full."""

    def write(self, chunk: bytes) -> None:
        """Write a part of the body."""

    def complete(self) -> None:
        """End the body."""

    def fail(self) -> None:
        """End the connection without the end of the body, so that the client notices."""

    def abort(self) -> None:
        """End the connection at once, without the bytes on their way."""

    def unsent(self) -> int:
        """Return the number of bytes not taken by the client."""


class StreamConnection(Connection):
    """Writes the bytes of a consumer until there is no room or nothing more, again and again.

    Between two calls of ``go_on`` nothing runs. The hub forgets the consumer at its end.
    """

    __slots__ = ("_consumer", "_hub", "_outlet", "_seen", "_since")

    def __init__(self, hub: Hub, consumer: StreamConsumer, outlet: Outlet) -> None:
        self._hub = hub
        self._consumer = consumer
        self._outlet: Outlet | None = outlet
        self._seen: tuple[float, int] | None = None
        self._since = 0.0
        consumer.connection = self

    @property
    def is_full(self) -> bool:
        """See ``Connection``."""
        return self._outlet is not None and self._outlet.is_full

    def go_on(self) -> None:
        """See ``Connection``. Waits for an unreachable store."""
        consumer, outlet = self._consumer, self._outlet
        if outlet is None:
            return
        try:
            while not outlet.is_full:
                chunk = consumer.take()
                if chunk is None:
                    return
                if not chunk:
                    self.close()
                    outlet.complete()
                    return
                outlet.write(chunk)
                if consumer.is_asleep:
                    return
        except StoreUnavailableError as error:
            logger.debug("consumer %d waits for the store: %s", consumer.id, error)
            consumer.pause(_RETRY_SECONDS)
        except BaseException as error:
            message = "the stream of consumer %d at %s failed: %r"
            logger.error(message, consumer.id, consumer.address, error, exc_info=error)
            self.close()
            outlet.fail()
            if not isinstance(error, Exception):
                raise

    def close(self) -> None:
        """Disconnect the consumer. Nothing is written any more. A second call does nothing."""
        if self._outlet is not None:
            self._outlet = None
            self._consumer.connection = NOT_CONNECTED
            self._hub.disconnect(self._consumer)

    def stalled_seconds(self, now: float, last_write: float) -> float:
        """See ``Connection``."""
        if self._outlet is None or not self._outlet.is_full:
            self._seen = None
            return 0.0
        seen = (last_write, self._outlet.unsent())
        if seen != self._seen:
            self._seen = seen
            self._since = now
        return now - self._since

    def abort(self) -> bool:
        """See ``Connection``. Disconnects the consumer."""
        outlet = self._outlet
        if outlet is None:
            return False
        self.close()
        outlet.abort()
        return True
