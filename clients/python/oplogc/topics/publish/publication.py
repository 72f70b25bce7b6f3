"""The messages of one call of ``publish``. No I/O."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from oplogc.topics.messages.message import Sendable, encode
from oplogc.topics.messages.names import TopicName, topic_name


@dataclass(eq=False, slots=True)
class Publication:
    """Messages to be stored together or not at all.

    ``until``: ``time.monotonic()`` after which they count as not confirmed. None: never.
    ``is_sent``: whether an agent may have read them.
    """

    name: TopicName
    messages: list[bytes]
    until: float | None
    is_sent: bool = False
    future: Future[None] = field(default_factory=Future)

    @property
    def size(self) -> int:
        """Bytes in a request."""
        return sum(map(len, self.messages)) + len(self.messages)


def publication(topic: str, messages: Sequence[Sendable], retry_for: float | None) -> Publication:
    """Check a call of ``publish``. ``retry_for``: seconds to confirm. Raise ValueError."""
    name = topic_name(topic)
    if not messages:
        raise ValueError("publish: give at least one message")
    until = None if retry_for is None else time.monotonic() + retry_for
    return Publication(name, [encode(message) for message in messages], until)


RecordFuture = asyncio.Future[str | None] | Future[str | None]


def is_wanted(future: RecordFuture | Future[None]) -> bool:
    """Return whether a future is not cancelled. It cannot be cancelled after this."""
    if isinstance(future, asyncio.Future):
        return not future.done()
    return future.running() or future.set_running_or_notify_cancel()


def fail(future: RecordFuture | Future[None], error: Exception) -> None:
    """Set the exception of a future, unless the future is cancelled."""
    if is_wanted(future):
        future.set_exception(error)
        future.exception()  # retrieved: asyncio does not log it


def done() -> Future[None]:
    """Return a done future."""
    future: Future[None] = Future()
    future.set_result(None)
    return future
