"""Operations as bytes, checked before they leave. No I/O."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from oplogc.errors import OperationError

MAX_BYTES = 64 * 1024
MAX_DATAGRAM_BYTES = 65_507
"""What fits into one datagram over IPv4; a little less than the agent would take over HTTP."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(
    event: str, type: str, id: str, parents: Sequence[str] = (), timestamp: datetime | str | None = None
) -> bytes:
    """One line of JSON. Raises OperationError for what an agent would refuse, save that a timestamp given as text is not read."""
    _check_event(event)
    _check_type(type)
    _check_text("id", id, 1024)
    fields: dict[str, object] = {"event": event, "type": type, "id": id}
    if parents:
        if isinstance(parents, str):
            raise OperationError("parents", "must be a list of strings")
        for parent in parents:
            _check_text("parents", parent, MAX_BYTES)
        fields["parents"] = list(parents)
    if timestamp is not None:
        fields["timestamp"] = _time(timestamp)
    raw = _encode(fields).encode()  # the parts were checked: no unpaired surrogate is left
    if len(raw) > MAX_BYTES:
        raise OperationError("operation", f"has {len(raw):,} bytes, more than {MAX_BYTES:,}")
    return raw


def check_datagram(raw: bytes) -> None:
    """Raises OperationError for an operation that fits into no datagram."""
    if len(raw) > MAX_DATAGRAM_BYTES:
        raise OperationError("operation", f"has {len(raw):,} bytes, more than a datagram holds; send it over HTTP")


@lru_cache(64)
def _check_event(event: str) -> None:
    if not isinstance(event, str) or event.lower() not in ("insert", "update", "delete"):
        raise OperationError("event", "must be insert, update or delete")


@lru_cache(1024)  # there are few types; OperationError is not cached
def _check_type(type: str) -> None:
    _check_text("type", type.lower() if isinstance(type, str) else type, 255)
    if "/" in type or "," in type:
        raise OperationError("type", "must not contain '/' or ','")


def _check_text(field: str, text: object, max_bytes: int) -> None:
    if not isinstance(text, str):
        raise OperationError(field, "must be a string")
    if not text:
        raise OperationError(field, "must not be empty")
    if "\0" in text:
        raise OperationError(field, "must not contain NUL")
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise OperationError(field, "contains an unpaired surrogate") from None
    if size > max_bytes:
        raise OperationError(field, f"is longer than {max_bytes:,} bytes")


def _time(timestamp: datetime | str) -> str:
    if isinstance(timestamp, str):
        _check_text("timestamp", timestamp, 64)
        return timestamp
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None:
        raise OperationError(
            "timestamp", "must be a datetime with a time zone, for example datetime.now(UTC), or RFC 3339"
        )
    try:
        return timestamp.astimezone(UTC).isoformat(timespec="milliseconds")
    except OverflowError as error:
        raise OperationError("timestamp", str(error)) from None
