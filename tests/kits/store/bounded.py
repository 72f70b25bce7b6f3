"""Topics with a bound in bytes, and messages that take a sixteenth of it."""

from oplogd.store.topics import (
    ENTRY_BYTES,
    MIN_MAX_BYTES,
    Full,
    MessageBatch,
    Topic,
    Topics,
)
from tests.kits.store.messages import message, messages, publish

BOUND = MIN_MAX_BYTES
SIZE = BOUND // 16
# So many large messages are within the bound.
FIT = BOUND // SIZE


def large(number: int) -> str:
    """Return a payload that counts SIZE bytes as a message."""
    start = f"{number:06d}"
    return start + "x" * (SIZE - octets_of(start))


def octets_of(payload: str) -> int:
    return len(message(payload).data) + ENTRY_BYTES


def numbers(read: list[str | None]) -> list[int]:
    """Return the numbers of large messages."""
    return [int(payload[:6]) for payload in read if payload is not None]


async def fill(topics: Topics, topic: Topic, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        await publish(topics, topic, large(number))


async def settle(topics: Topics) -> None:
    """Shrink until nothing more leaves."""
    while await topics.shrink():
        pass


async def reason_of_refusal(topics: Topics, topic: Topic) -> str:
    """Publish, which must be refused. Return the reason."""
    (outcome,) = await topics.append([MessageBatch(topic.log, messages(["more"]))])
    assert isinstance(outcome, Full)
    return outcome.reason
