"""How a mirror recognises its own messages and operations. No I/O.

From a topic to another one, a sink adds a header ``oplog-origin`` with its own id, and topic and id
of the message. Two rules end a circle:

- The sink has sent a message with its own id before.
- A message from a topic with the target's name came from the target, if the target has its id.

Operations have no headers. A repeated one is only reported.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from oplog_pipe.message import Message

HEADER = "oplog-origin"
_encode = msgspec.json.Encoder().encode
# JSON of a message up to which it gets the header. An agent takes 1 MiB with headers.
_MAX_BYTES = 1_000_000
# So many repetitions within so many seconds look like a circle.
_TIMES = 10
_SECONDS = 3600.0
_WATCHED = 64


class Origin(NamedTuple):
    """``hop``: sink before this one. ``log``, ``id``: topic and id it had before."""

    hop: str
    log: str
    id: str


class PolledMessage(msgspec.Struct):
    """A message of a topic, as a poll shows it."""

    id: str
    payload: str | None
    key: str | None = None
    encoding: str | None = None

    def is_copied_by(self, data: Mapping[str, Any]) -> bool:
        """Return whether a message has the same content."""
        other = data.get("key"), data.get("payload"), data.get("encoding")
        return other == (self.key, self.payload, self.encoding)


def origins(data: Mapping[str, Any]) -> list[Origin]:
    """Return the origins a message of a topic names, the first one first."""
    headers = data.get("headers")
    found = []
    for each in headers if isinstance(headers, list) else ():
        match each:
            case [name, str() as text] if name == HEADER and text.count(" ") == 2:
                found.append(Origin(*text.split(" ")))
    return found


def marked(data: Mapping[str, Any], hop: str, log: str) -> bytes:
    """Return the JSON of a message of a topic without its id, and with its origin.

    ``hop``: empty: no origin. A message of nearly the largest size gets none.
    """
    plain = {name: value for name, value in data.items() if name != "id"}
    if hop:
        origin = [HEADER, f"{hop} {log} {data['id']}"]
        found = _encode({**plain, "headers": [*data.get("headers", ()), origin]})
        if len(found) <= _MAX_BYTES:
            return found
    return _encode(plain)


class Own:
    """Counts messages a sink does not send, since their header names it, by their source.

    Only the header can tell: a transform may have changed the content on the way round.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._newest = -1

    def see(self, message: Message) -> str:
        """Note a message, each offset once. Return a sentence about its source."""
        source, data = message.source, message.data
        if message.offset > self._newest:
            self._newest = message.offset
            self._counts[source] += 1
        count = self._counts[source]
        number = "1 message of {} was" if count == 1 else f"{count:,} messages of {{}} were"
        return (
            f"{number.format(source)} not sent, the last one {data['id']}: the header {HEADER} says"
            " that this sink has sent it before. Either it has gone round, or a program has copied"
            f" its headers from another message; such a program must leave {HEADER} out"
        )


class Circles:
    """Watches a few operations for an hour each. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Operation -> times it came, and the first of them.
        self._watched: dict[tuple[str, str, str, int], tuple[int, float]] = {}
        self._newest = -1

    def see(self, messages: Sequence[Message]) -> str | None:
        """Note sent operations. Return a sentence about one with too many repetitions.

        An offset counts once, and so does an operation within one write: many changes of one object
        may have the same time.
        """
        found = None
        now = self._clock()
        new = [each for each in messages if each.offset > self._newest]
        if new:
            self._newest = new[-1].offset
        for op, namespace, id, ms in dict.fromkeys(
            (each.op, each.namespace, each.id, each.timestamp) for each in new
        ):
            key = (op, namespace, id, ms)
            count, since = self._watched.get(key, (0, now))
            if now - since > _SECONDS:
                count, since = 0, now
            if not count and key not in self._watched and not self._has_room(now):
                continue
            count += 1
            self._watched[key] = (count, since)
            if count >= _TIMES and str(count).strip("0") == "1":  # 10, 100, 1,000 …
                found = (
                    f"the same operation, {op} {namespace} {id!r}, came"
                    f" {count:,} times within {max(now - since, 1):.0f} s: do pipes send"
                    " operations to each other, or does this sink send them to the store of its"
                    " source? They would go round without end"
                )
        return found

    def _has_room(self, now: float) -> bool:
        """Return whether one more can be watched. Forget operations whose hour is over."""
        watched = self._watched
        if len(watched) >= _WATCHED:
            for key in [key for key, (_, since) in watched.items() if now - since > _SECONDS]:
                del watched[key]
        return len(watched) < _WATCHED
