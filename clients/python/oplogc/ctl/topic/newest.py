"""Finds the newest messages of a topic, which polls give from the oldest on. No I/O.

The latest millisecond from which on there are enough messages is found by bisection, so the work
does not grow with the topic.
"""

from collections import deque
from collections.abc import Generator
from typing import NamedTuple

from oplogc.topics import Polled, ReceivedMessage
from oplogc.topics.messages.message import published_ms


class Ask(NamedTuple):
    """A poll: from this position, and how many messages at most."""

    start: str | int | None
    inclusive: bool
    limit: int


Polls = Generator[Ask, Polled, list[ReceivedMessage]]


def newest(wanted: int, now_ms: int) -> Polls:
    """Yield polls, take their answers, and return the newest ``wanted`` messages, oldest first."""
    found = (yield Ask(None, True, 1)).messages
    if not found:
        return []
    enough = published_ms(found[0].id)  # from here on there are all messages
    few = max(now_ms, enough) + 1
    while len((yield from _up_to(few, wanted))) >= wanted:  # the agent's clock is ahead
        enough, few = few, few + 2 * (few - enough)
    step = 1
    while few - step > enough:  # from the end in growing steps: most topics are busy
        if len((yield from _up_to(few - step, wanted))) >= wanted:
            enough = few - step
            break
        few -= step
        step *= 4
    while few - enough > 1:
        middle = (few + enough) // 2
        if len((yield from _up_to(middle, wanted))) >= wanted:
            enough = middle
        else:
            few = middle
    newest: deque[ReceivedMessage] = deque(maxlen=wanted)
    ask = Ask(enough, True, max(wanted, 1000))
    while (polled := (yield ask)).messages:
        newest.extend(polled.messages)
        ask = Ask(_end(polled), False, ask.limit)
    return list(newest)


def _up_to(start: int, wanted: int) -> Polls:
    """Return the first ``wanted`` messages from a time on, fewer if there are fewer."""
    messages: list[ReceivedMessage] = []
    ask = Ask(start, True, wanted)
    while len(messages) < wanted and (polled := (yield ask)).messages:
        messages += polled.messages
        ask = Ask(_end(polled), False, wanted - len(messages))
    return messages


def _end(polled: Polled) -> str:
    """Return the position after which the next poll begins."""
    return polled.position or polled.messages[-1].id
