"""Names and ids made from templates, and the last message of each of them. No I/O."""

import re
from collections.abc import Callable, Sequence

from oplog_pipe.message import Message

# Number in the batch, and the message.
Numbered = tuple[int, Message]
# Place -> id -> last message.
Collapsed = dict[str, dict[str, Numbered]]

_PLACES = re.compile(r"(\{namespace\}|\{id\})")


class Template:
    """A text with places for the namespace and the id of a message."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts = _PLACES.split(text)
        pattern = ""
        for part in self._parts:
            if part == "{namespace}":
                pattern += "(?P=namespace)" if "(?P<" in pattern else "(?P<namespace>.+)"
            else:
                pattern += ".+" if part == "{id}" else re.escape(part)
        self._pattern = re.compile(pattern, re.DOTALL)

    def of(self, message: Message) -> str:
        """Return the text for a message."""
        match self._text:
            case "{id}":
                return message.id
            case "{namespace}":
                return message.namespace
        filled = {"{namespace}": message.namespace, "{id}": message.id}
        return "".join(filled.get(part, part) for part in self._parts)

    def namespace_in(self, text: str) -> str | None:
        """Return the namespace in a text of this template, empty if it has none. None: no such."""
        found = self._pattern.fullmatch(text)
        return None if found is None else found.groupdict().get("namespace", "")

    def fits(self, text: str, namespace: re.Pattern[str]) -> bool:
        """Return whether a message of a namespace the pattern finds can have the text."""
        found = self.namespace_in(text)
        return found is not None and (not found or namespace.search(found) is not None)


def collapse(
    messages: Sequence[Message], place: Callable[[Message], str], key: Callable[[Message], str]
) -> Collapsed:
    """Return the last message of each object."""
    found: Collapsed = {}
    for index, message in enumerate(messages):
        found.setdefault(place(message), {})[key(message)] = (index, message)
    return found
