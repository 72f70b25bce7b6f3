"""The properties of a topic as clients send and get them. No I/O."""

from typing import Any

import msgspec

from oplogd.errors import MessageError, TopicError
from oplogd.message import ttl_seconds


def parse_properties(raw: bytes) -> int | None:
    """Return the time to live in seconds that a body sets, None if it sets none.

    Raises TopicError. An empty body sets nothing.
    """
    if not raw.strip():
        return None
    try:
        given: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TopicError("body", "is not valid JSON") from None
    if not isinstance(given, dict):
        raise TopicError("body", "must be an object")
    if unknown := sorted(given.keys() - {"ttl"}):
        raise TopicError(unknown[0], "is not a property of a topic")
    try:
        return ttl_seconds(given.get("ttl"), "ttl")
    except MessageError as error:
        raise TopicError(error.field, error.reason) from None


def shown(name: str, properties: dict[str, int]) -> dict[str, Any]:
    """Return the members of a topic for an answer."""
    return {"name": name, "properties": {key: str(value) for key, value in properties.items()}}
