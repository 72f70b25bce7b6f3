"""The last message of each object in a batch, by the place of the object. No I/O."""

from collections.abc import Callable, Sequence

from oplog_pipe.message import Message

# Number in the batch, and the message.
Numbered = tuple[int, Message]
# Place -> id -> last message.
Collapsed = dict[str, dict[str, Numbered]]


def collapse(
    messages: Sequence[Message], place: Callable[[Message], str], key: Callable[[Message], str]
) -> Collapsed:
    """Return the last message of each object."""
    found: Collapsed = {}
    for index, message in enumerate(messages):
        found.setdefault(place(message), {})[key(message)] = (index, message)
    return found
