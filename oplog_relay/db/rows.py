"""Rows of the outbox from the values of a database. No I/O."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from oplog_relay.model.row import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def make_row(
    id_: int,
    create_time: datetime | str,
    topic: str | None,
    key: str | None,
    value: str | None,
    header_keys: Sequence[object] | str | None,
    header_values: Sequence[object] | str | None,
    mark: int = 0,
) -> Row:
    """Return a row. Unreadable ``create_time`` and headers are a sentence with the reason.

    A fault of a row concerns its key only, so the whole mark must not fail.
    """
    headers = _headers(header_keys, header_values)
    faults = [each for each in (create_time, headers) if isinstance(each, str)]
    if key is None or topic is None:
        faults.append(f"the {'key' if key is None else 'topic'} is NULL")
    time = _EPOCH if isinstance(create_time, str) else create_time
    pairs = () if isinstance(headers, str) else headers
    return Row(id_, time, topic or "", key or "", value, pairs, "; ".join(faults), mark)


def from_seconds(seconds: float) -> datetime | str:
    """Return the time of seconds since 1970 in whole microseconds, or the reason of a failure."""
    try:
        return _EPOCH + timedelta(microseconds=round(seconds * 1_000_000))
    except (OverflowError, ValueError):
        return "the create time is out of range"


def from_json(text: object, name: str) -> list[object] | str:
    """Return the list in the column ``name`` of headers, or the reason of a failure."""
    try:
        found = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, list) else f"{name} is not a JSON list of strings"


def _headers(
    keys: Sequence[object] | str | None, values: Sequence[object] | str | None
) -> tuple[tuple[str, str], ...] | str:
    for each, what in ((keys, "header keys"), (values, "header values")):
        if each is None:
            return f"the {what} are NULL"
        if isinstance(each, str):
            return each
    assert keys is not None
    assert values is not None
    if len(keys) != len(values):
        return f"there are {len(keys)} header keys and {len(values)} header values"
    pairs = zip(keys, values, strict=True)
    headers = tuple((k, v) for k, v in pairs if isinstance(k, str) and isinstance(v, str))
    return headers if len(headers) == len(keys) else "a header's key or value is not a string"


def read_time(value: object) -> datetime | str:
    """Return the time in a column of SQLite, or the reason of a failure.

    Text is ISO 8601, in UTC if it has no offset. Numbers are seconds since 1970; large ones are
    milliseconds or microseconds. NULL is now.
    """
    if value is None:
        return datetime.now(UTC)
    if isinstance(value, int | float):
        return _from_number(value)
    text = str(value).strip()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        # A column of the type TEXT stores numbers as text.
        try:
            return _from_number(float(text))
        except ValueError:
            return "the create time is no date and time"
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        return "the create time is out of range"


def _from_number(value: float) -> datetime | str:
    size = abs(value)
    return from_seconds(value / (1_000_000 if size >= 1e14 else 1000 if size >= 1e11 else 1))


def text_of(raw: bytes) -> str:
    """Return text as ``Row`` has it: invalid UTF-8 becomes surrogates."""
    return raw.decode(errors="surrogateescape")
