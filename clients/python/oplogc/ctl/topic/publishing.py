"""Publishes many messages, and shows the progress."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

from oplogc.ctl.options.connection import Failed
from oplogc.topics import Message, Topics
from oplogc.topics.messages.batch import BATCH_BYTES
from oplogc.topics.messages.message import encode
from oplogc.wire.errors import MessageError, NotAllowed, OplogError

MAX_WAITING = 10_000
BATCH_SIZE = 1000
_PROGRESS_SECONDS = 0.5


class PublishError(Exception):
    """Publishing ended early. ``confirmed``: number of durable messages."""

    def __init__(self, reason: str, confirmed: int) -> None:
        super().__init__(f"{reason}. {are_published(confirmed)}")


def are_published(count: int, done: str = "published") -> str:
    return f"1 message is {done}" if count == 1 else f"{count:,} messages are {done}"


class Progress:
    """A line on stderr with the number of messages, in a terminal only."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _PROGRESS_SECONDS
        self._has_line = False

    def show(self, count: int) -> None:
        if self._is_shown and time.monotonic() >= self._next:
            print(f"\r{count:,} messages published", end="", file=sys.stderr, flush=True)
            self._next = time.monotonic() + _PROGRESS_SECONDS
            self._has_line = True

    def clear(self) -> None:
        if self._has_line:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._has_line = False


def lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file without their ends."""
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def publish(
    topics: Topics,
    topic: str,
    payloads: Iterable[bytes],
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    ttl: int | None,
) -> int:
    """Publish each payload as a message. Return their number.

    Raises PublishError, also at Ctrl-C and if the payloads cannot be read, and NotAllowed.
    """
    waiting: deque[Future[None]] = deque()
    progress = Progress()
    number = confirmed = 0

    def settle(most: int) -> None:
        nonlocal confirmed
        while waiting and (len(waiting) > most or waiting[0].done()):
            waiting.popleft().result()
            confirmed += 1
            progress.show(confirmed)

    def ended(reason: str) -> PublishError:
        return PublishError(reason, confirmed + sum(_is_stored(each) for each in waiting))

    try:
        for payload in payloads:
            number += 1
            message = Message(payload, key, headers, ttl)
            waiting.append(topics.publish(topic, message))
            settle(MAX_WAITING)
        settle(0)
    except MessageError as error:
        _settle(waiting)
        raise ended(f"message {number:,}: {error}") from None
    except OSError as error:
        _settle(waiting)
        raise ended(f"cannot read stdin: {error.strerror}") from None
    except NotAllowed:
        raise
    except OplogError as error:
        raise ended(str(error)) from None
    except KeyboardInterrupt:
        raise ended("interrupted") from None
    finally:
        progress.clear()
    return confirmed


def send_batches(
    send: Callable[[list[Message]], object],
    payloads: Iterable[bytes],
    message: Callable[[bytes], Message],
    done: str,
) -> int:
    """Send each payload as a message, many per request. Return their number.

    ``done``: the effect, in a word. Raises Failed, with the number done, and NotAllowed.
    """
    count = 0
    try:
        for batch in _batches(payloads, message):
            send(batch)
            count += len(batch)
    except NotAllowed:
        raise
    except OplogError as error:
        raise Failed(f"{error}. {are_published(count, done)}") from None
    except OSError as error:
        raise Failed(f"cannot read stdin: {error.strerror}. {are_published(count, done)}") from None
    except KeyboardInterrupt:
        reason = f"interrupted: the last request may be {done}, too"
        raise Failed(f"{reason}. {are_published(count, done)}") from None
    return count


def _batches(
    payloads: Iterable[bytes], message: Callable[[bytes], Message]
) -> Iterator[list[Message]]:
    """Yield messages for a request each. Raise MessageError, which names the message."""
    batch: list[Message] = []
    size = 0
    for number, payload in enumerate(payloads, 1):
        made = message(payload)
        try:
            more = len(encode(made))
        except MessageError as error:
            raise MessageError(f"message {number:,}: {error.field}", error.reason) from None
        if batch and (len(batch) == BATCH_SIZE or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(made)
        size += more
    if batch:
        yield batch


def _settle(waiting: Iterable["Future[None]"]) -> None:
    """Wait for the answers to messages on their way."""
    for each in waiting:
        each.exception()


def _is_stored(future: "Future[None]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
