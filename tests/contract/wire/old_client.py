"""A test double of a client of the first server, as strict as the wire contract describes it."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_ID = re.compile(r"[0-9]{1,13}|[0-9a-f]{24}")
_FIELDS = ("id", "event", "data")
_EVENTS = ("insert", "update", "delete", "reset", "live")


class BrokenStreamError(Exception):
    """An old client cannot read the stream."""


class OldEvent(NamedTuple):
    id: str
    event: str
    operation: dict[str, Any] | None


def read(stream: bytes) -> Iterator[OldEvent]:
    """Return the events in the bytes of a stream, without an incomplete last line.

    Raises BrokenStreamError.
    """
    fields: list[tuple[str, str]] = []
    for line in stream.split(b"\n")[:-1]:
        text = line.decode()
        if "\r" in text:
            raise BrokenStreamError(f"a carriage return in {text!r}")
        if text.startswith(":"):
            continue
        if text:
            name, colon, value = text.partition(":")
            if not colon:
                raise BrokenStreamError(f"no field: {text!r}")
            fields.append((name, value.removeprefix(" ")))
        else:
            yield _event(fields)
            fields = []


def _event(fields: list[tuple[str, str]]) -> OldEvent:
    if tuple(name for name, _ in fields) != _FIELDS:
        raise BrokenStreamError(f"not id, event, data: {fields}")
    id_, event, data = (value for _, value in fields)
    if not _ID.fullmatch(id_) or event not in _EVENTS:
        raise BrokenStreamError(f"an unknown id or event: {fields}")
    if event in ("reset", "live"):
        return OldEvent(id_, event, None)
    operation = json.loads(data)
    if list(operation) not in (
        ["timestamp", "parents", "type", "id"],
        ["timestamp", "parents", "type", "id", "ref"],
    ):
        raise BrokenStreamError(f"not the members of an operation: {data}")
    return OldEvent(id_, event, operation)
