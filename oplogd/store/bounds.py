"""The rules of bounds in bytes for all stores. No I/O."""

from collections.abc import Sequence

from oplogd.errors import MessageTooLargeError
from oplogd.model.message import Message
from oplogd.model.names import TopicName
from oplogd.store.topics import DECIDED_MS, ENTRY_BYTES, MIN_MAX_BYTES, Topic

# Reason of records that stay behind the front.
RECORDS_FILL = "records and stored messages of transactions that are not over fill it"


def slack(max_bytes: int) -> int:
    """Return the bytes to remove besides those over the bound: entries do not leave singly."""
    return min(max_bytes // 16, MIN_MAX_BYTES)


def just_decided(of: str, id_: int | str) -> str:
    """Return why the entries of a transaction or pointer must stay."""
    return f"{of} {id_} was decided less than {DECIDED_MS // 1000} s ago"


def full_topic(name: TopicName, max_bytes: int, held_by: str) -> str:
    """Return the sentence for a topic whose oldest entries must stay."""
    return (
        f"the topic {name} stores its max_bytes of {max_bytes:,} bytes and nothing may leave now:"
        f" {held_by}; try again later"
    )


def full_total(max_bytes: int) -> str:
    """Return the sentence for topics that are full together."""
    return (
        f"all topics together store {max_bytes:,} bytes (--topics-max-bytes) and nothing may leave"
        " now: transactions and pointers that are not over need their oldest messages; try again"
        " later"
    )


def require_fitting(topic: Topic, messages: Sequence[Message]) -> None:
    """Raise MessageTooLargeError for a message larger than the bound of its topic."""
    if topic.max_bytes is None:
        return
    for number, message in enumerate(messages):
        size = len(message.data) + ENTRY_BYTES
        if size > topic.max_bytes:
            raise MessageTooLargeError(
                f"messages[{number}]",
                f"takes {size:,} bytes, more than the topic's max_bytes of {topic.max_bytes:,}",
            )
