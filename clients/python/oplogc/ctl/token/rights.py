"""Rights as tokens name them, with the rules of agents. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oplogc.topics.messages.names import OPLOG, namespace_name, topic_name

# Of one right.
MAX_PATTERNS = 100
MAX_VALUES = 1_000

_MAX_TYPE_BYTES = 255
_MAX_PARENT_BYTES = 64 * 1024
_EVERYTHING = "*"

Right = dict[str, list[str]]


def topic_pattern(text: str) -> str:
    """Return NAMESPACE/TOPIC, NAMESPACE/* or *. Raise ValueError without the text."""
    namespace, slash, topic = text.partition("/")
    try:
        if text == _EVERYTHING:
            return text
        if not slash:
            raise ValueError
        if topic == _EVERYTHING:
            namespace_name(namespace)
        else:
            topic_name(text)
    except ValueError:
        raise ValueError("a pattern must be NAMESPACE/TOPIC, NAMESPACE/* or *") from None
    return text


def lease_pattern(text: str) -> str:
    """Return NAME, PREFIX* or *. Raise ValueError without the text."""
    prefix = text.removesuffix(_EVERYTHING)
    try:
        if text != _EVERYTHING:
            # A prefix may be "." or "..", which are no names.
            namespace_name(text if prefix == text else f"{prefix}x")
    except ValueError:
        raise ValueError("a pattern must be a NAME, PREFIX* or *") from None
    return text


def type_name(text: str) -> str:
    """Return a type of objects. Raise ValueError without the text."""
    if "/" in text or "," in text:
        raise ValueError("a type contains neither '/' nor ','")
    return _value(text, _MAX_TYPE_BYTES)


def parent_key(text: str) -> str:
    """Return a parent. Raise ValueError without the text."""
    return _value(text, _MAX_PARENT_BYTES)


def _value(text: str, max_bytes: int) -> str:
    if not text:
        raise ValueError("a value must not be empty")
    if len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise ValueError(f"a value has more than {max_bytes:,} bytes")
    return text


# Member of a right -> the rule of its values.
_PATTERNS: dict[str, Callable[[str], str]] = {
    "read": topic_pattern,
    "write": topic_pattern,
    "manage": topic_pattern,
    "leases": lease_pattern,
}
_VALUES: dict[str, Callable[[str], str]] = {"types": type_name, "parents": parent_key}
_RULES = _PATTERNS | _VALUES
MEMBERS = tuple(_RULES)


class RightError(ValueError):
    """A right breaks a rule of agents. The message repeats no value. ``members``: at fault."""

    def __init__(self, members: Sequence[str], reason: str) -> None:
        super().__init__(reason)
        self.members = tuple(members)


def check_counts(right: Mapping[str, Sequence[str]]) -> None:
    """Raise RightError for too many patterns or values."""
    for rules, most, kind in (
        (_PATTERNS, MAX_PATTERNS, "patterns"),
        (_VALUES, MAX_VALUES, "values"),
    ):
        given = [name for name in rules if right.get(name)]
        count = sum(len(right[name]) for name in given)
        if count > most:
            raise RightError(given, f"{count:,} {kind}, at most {most:,} are possible")


def right_of(given: Any) -> Right:
    """Return the right in a claim of a token, as an agent takes it. Raise RightError.

    With ``types`` or ``parents`` and no pattern at all it is the right to read the operations.
    """
    if not isinstance(given, dict):
        raise RightError([], "must be an object")
    for name, values in given.items():
        if name not in _RULES:
            raise RightError([], "has a member that a right does not have")
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise RightError([name], "must be a list of strings")
        if name in _VALUES and not values:
            raise RightError([name], "must have one or more values")
    check_counts(given)
    right = {name: given[name] for name in MEMBERS if name in given}
    for name, values in right.items():
        try:
            for each in values:
                _RULES[name](each)
        except ValueError as error:
            raise RightError([name], str(error)) from None
    if right and not any(name in right for name in _PATTERNS):
        right = {"read": [str(OPLOG)], **right}
    return right
