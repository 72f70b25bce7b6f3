"""The properties of a topic as clients send and get them. No I/O."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.typed import Rules, about, read
from oplogd.errors import MessageError, TopicError
from oplogd.model.message import REASONS, Ttl, ttl_seconds
from oplogd.model.pointer import DEFAULT_RULES, MAX_TIMEOUT, PointerRules
from oplogd.store.topics import MIN_MAX_BYTES


class CheckedProperties(NamedTuple):
    """See ``Topic``. ``pointers``: the rules for messages under pointers."""

    ttl: int | None = None
    pointers: PointerRules = DEFAULT_RULES
    max_bytes: int | None = None


class TopicProperties(msgspec.Struct, forbid_unknown_fields=True):
    """The properties of a topic. An absent one gets its default. Numbers may also be strings."""

    ttl: Annotated[Ttl, about("Time to live of messages in seconds: 1 to 100 years.", 3600)] = None
    pointers: Annotated[
        Literal["on", "off"] | None, about("off: messages under pointers are refused (409).")
    ] = None
    pointer_timeout: Annotated[
        Ttl, about("How long a pointer stays open, in seconds: 1 to 30 days.")
    ] = None
    max_bytes: Annotated[
        int | str | None,
        about(
            f"Bytes above which the oldest messages leave, at least {MIN_MAX_BYTES:,}. Without it:"
            " no bound.",
            1 << 30,
        ),
    ] = None


_TIMEOUT = f"must be a whole number of seconds from 1 to {MAX_TIMEOUT:,}"
_BYTES = f"must be a whole number of bytes, at least {MIN_MAX_BYTES:,}"
_RULES = Rules(
    {
        "ttl": REASONS["ttl"],
        "pointers": "must be on or off",
        "pointer_timeout": _TIMEOUT,
        "max_bytes": _BYTES,
    },
    unknown="is not a property of a topic",
)
_decode: Callable[[Text], TopicProperties] = msgspec.json.Decoder(TopicProperties).decode


def parse_properties(raw: Buffer) -> CheckedProperties:
    """Return the properties of a body, absent ones by default. Raises TopicError."""
    if not raw.strip():
        return CheckedProperties()
    try:
        given = read(_decode, raw, "body", _RULES)
        return CheckedProperties(
            ttl_seconds(given.ttl, "ttl"),
            PointerRules(given.pointers != "off", _timeout(given.pointer_timeout)),
            _max_bytes(given.max_bytes),
        )
    except MessageError as error:
        raise TopicError(error.field, error.reason) from None


def _max_bytes(given: int | str | None) -> int | None:
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) <= 19:
        given = int(given)
    if given is None:
        return None
    if isinstance(given, str) or not MIN_MAX_BYTES <= given < 1 << 63:
        raise MessageError("max_bytes", _BYTES)
    return given


def rules_shown(rules: PointerRules) -> dict[str, str | int]:
    """Return the properties of these rules with another value than the default."""
    shown: dict[str, str | int] = {} if rules.is_on else {"pointers": "off"}
    return shown if rules.timeout is None else {**shown, "pointer_timeout": rules.timeout}


def shown(name: str, properties: Mapping[str, str | int]) -> dict[str, Any]:
    """Return the members of a topic for an answer."""
    return {"name": name, "properties": {key: str(value) for key, value in properties.items()}}


def _timeout(given: Ttl) -> int | None:
    """Return the time-out of pointers in seconds. Raises MessageError."""
    try:
        seconds = ttl_seconds(given, "pointer_timeout")
    except MessageError:
        raise MessageError("pointer_timeout", _TIMEOUT) from None
    if seconds is not None and seconds > MAX_TIMEOUT:
        raise MessageError("pointer_timeout", _TIMEOUT)
    return seconds
