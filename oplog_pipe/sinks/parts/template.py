"""Names and ids made from a template with ``{namespace}`` and ``{id}``. No I/O."""

import re

from oplog_pipe.message import Message

_PLACES = re.compile(r"(\{namespace\}|\{id\})")


class Template:
    """A text with places for the namespace and the id of a message."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts = _PLACES.split(text)
        self._pattern = re.compile(_pattern(self._parts), re.DOTALL)

    def of(self, message: Message) -> str:
        """Return the text for a message."""
        match self._text:
            case "{id}":
                return message.id
            case "{namespace}":
                return message.namespace
        filled = {"{namespace}": message.namespace, "{id}": message.id}
        return "".join(filled.get(part, part) for part in self._parts)

    def fits(self, text: str, namespace: re.Pattern[str]) -> bool:
        """Return whether the text can come from a message of such a namespace.

        ``namespace``: searched in the namespace's part of the text, if any.
        """
        found = self._pattern.fullmatch(text)
        if found is None:
            return False
        return "namespace" not in found.groupdict() or bool(namespace.search(found["namespace"]))


def _pattern(parts: list[str]) -> str:
    pattern = ""
    for part in parts:
        if part == "{namespace}":
            pattern += "(?P=namespace)" if "(?P<" in pattern else "(?P<namespace>.+)"
        else:
            pattern += ".+" if part == "{id}" else re.escape(part)
    return pattern
