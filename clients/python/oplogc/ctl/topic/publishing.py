"""Publishes many messages, and shows the progress."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from oplogc.ctl.options.connection import Failed
from oplogc.topics import Message, Topics
from oplogc.topics.messages.batch import batches
from oplogc.topics.messages.message import encode
from oplogc.wire.errors import MessageError, NotAllowed, OplogError

MAX_WAITING = 10_000
BATCH_SIZE = 1000
_PROGRESS_SECONDS = 0.5

MakeMessage = Callable[[bytes], Message]


def are_published(count: int, done: str = "published") -> str:
    return f"1 message is {done}" if count == 1 else f"{count:,} messages are {done}"


class ProgressLine:
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


@contextmanager
def _counted(
    number: Callable[[], int], count: Callable[[], int], done: str, interrupted: str
) -> Iterator[None]:
    """Turn errors and Ctrl-C into Failed with the number of messages done. Raises NotAllowed."""
    try:
        yield
        return
    except NotAllowed:
        raise
    except MessageError as error:
        reason = f"message {number():,}: {error}"
    except OplogError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot read stdin: {error.strerror}"
    except KeyboardInterrupt:
        reason = interrupted
    raise Failed(f"{reason}. {are_published(count(), done)}")


def publish(topics: Topics, topic: str, payloads: Iterable[bytes], message: MakeMessage) -> int:
    """Publish each payload. Return their number. Raises Failed, also at Ctrl-C, and NotAllowed."""
    waiting: deque[Future[None]] = deque()
    progress = ProgressLine()
    number = confirmed = 0

    def settle(most: int) -> None:
        nonlocal confirmed
        while waiting and (len(waiting) > most or waiting[0].done()):
            waiting.popleft().result()
            confirmed += 1
            progress.show(confirmed)

    def stored() -> int:
        return confirmed + sum(map(_is_stored, waiting))

    with _counted(lambda: number, stored, "published", "interrupted"):
        try:
            for payload in payloads:
                number += 1
                waiting.append(topics.publish(topic, message(payload)))
                settle(MAX_WAITING)
            settle(0)
        except (MessageError, OSError):
            for each in waiting:  # the messages on their way count
                each.exception()
            raise
        finally:
            progress.clear()
    return confirmed


def send_batches(
    send: Callable[[list[Message]], object],
    payloads: Iterable[bytes],
    message: MakeMessage,
    done: str,
) -> int:
    """Send the payloads, many per request. Return their number. Raises Failed and NotAllowed."""
    number = count = 0

    def sized() -> Iterator[tuple[Message, int]]:
        nonlocal number
        for payload in payloads:
            number += 1
            made = message(payload)
            yield made, len(encode(made))

    interrupted = f"interrupted: the last request may be {done}, too"
    with _counted(lambda: number, lambda: count, done, interrupted):
        for batch in batches(sized(), BATCH_SIZE, lambda each: each[1]):
            send([made for made, _ in batch])
            count += len(batch)
    return count


def _is_stored(future: "Future[None]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
