"""The properties of a topic as clients send and get them. No I/O."""

from collections.abc import Callable
from typing import Any

import msgspec

from oplogd.errors import MessageError, TopicError
from oplogd.json_input import Rules, read
from oplogd.message import REASONS, Ttl, ttl_seconds
from oplogd.operation import Text


class _Properties(msgspec.Struct, forbid_unknown_fields=True):
    ttl: Ttl = None


_RULES = Rules({"ttl": REASONS["ttl"]}, unknown="is not a property of a topic")
_decode: Callable[[Text], _Properties] = msgspec.json.Decoder(_Properties).decode


def parse_properties(raw: bytes) -> int | None:
    """Return the time to live in seconds that a body sets, None if it sets none.

    Raises TopicError. An empty body sets nothing.
    """
    if not raw.strip():
        return None
    try:
        return ttl_seconds(read(_decode, raw, "body", _RULES).ttl, "ttl")
    except MessageError as error:
        raise TopicError(error.field, error.reason) from None


def shown(name: str, properties: dict[str, int]) -> dict[str, Any]:
    """Return the members of a topic for an answer."""
    return {"name": name, "properties": {key: str(value) for key, value in properties.items()}}
