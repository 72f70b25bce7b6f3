"""Operations as bytes, checked before they leave. No I/O."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from oplogc.wire.errors import OperationError

EVENTS = ("insert", "update", "delete")
MAX_BYTES = 64 * 1024
MAX_DATAGRAM_BYTES = 65_507
"""Size of a datagram over IPv4, a little less than an agent's limit over HTTP."""

_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:[0-5]\d)",
    re.ASCII,
)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(
    event: str,
    type: str,
    id: str,
    parents: Sequence[str] = (),
    timestamp: datetime | str | None = None,
) -> bytes:
    """Return one line of JSON.

    Raises OperationError for an invalid operation.
    """
    if not isinstance(event, str):
        raise OperationError("event", "must be insert, update or delete")
    if not isinstance(type, str):
        raise OperationError("type", "must be a string")
    _check_event(event)
    _check_type(type)
    _check_text("id", id, 1024)
    fields: dict[str, object] = {"event": event, "type": type, "id": id}
    is_list = isinstance(parents, (list, tuple)) or parents is None
    if not is_list and (isinstance(parents, str) or not isinstance(parents, Sequence)):
        raise OperationError("parents", "must be a list of strings")
    if parents:
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
    """Raises OperationError for an operation too large for a datagram."""
    if len(raw) > MAX_DATAGRAM_BYTES:
        raise OperationError(
            "operation", f"has {len(raw):,} bytes, more than a datagram holds; send it over HTTP"
        )


@lru_cache(64)
def _check_event(event: str) -> None:
    if event.lower() not in EVENTS:
        raise OperationError("event", "must be insert, update or delete")


@lru_cache(1024)  # there are few types; OperationError is not cached
def _check_type(type: str) -> None:
    _check_text("type", type.lower(), 255)
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
        check_rfc3339(timestamp)
        return timestamp
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None:
        raise OperationError(
            "timestamp",
            "must be a datetime with a time zone, for example datetime.now(UTC), or RFC 3339",
        )
    try:
        return timestamp.astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError) as error:
        raise OperationError("timestamp", f"out of range: {error}") from None


def check_rfc3339(text: str) -> None:
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise OperationError("timestamp", "not an RFC 3339 time such as 2014-11-06T11:04:39.041Z")
    date, clock, fraction, offset = match.groups()
    try:
        datetime.fromisoformat(
            f"{date}T{clock}.{(fraction or '0')[:3]:0<3}{offset.upper()}"
        ).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise OperationError("timestamp", f"out of range: {error}") from None
