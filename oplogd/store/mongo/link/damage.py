"""Reading documents with missing members, or members of the wrong type. No I/O.

The first server stored dates outside RFC 3339, and other programs may have written anything. Such a
document must neither end an agent nor stop a replication. A damaged entry keeps its offset, so the
log stays dense.
"""

from collections.abc import Mapping
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from oplogd.model.event_id import MAX_OFFSET
from oplogd.model.operation import EVENTS, parse_timestamp

Document = dict[str, Any]

# Beginning of the year 1 and end of the year 9999 in UTC.
FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999

# Type of an object whose type cannot be read.
UNKNOWN = "damaged"

_MOST_REMEMBERED = 1_000

# Characters by which a damaged document is remembered: more than a type and an id have.
_MAX_KEY = 1_300


class Damage:
    """Counts the damaged documents: each once, at most 1,000."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def found(self, document: Mapping[str, Any], problem: str) -> None:
        if len(self._seen) < _MOST_REMEMBERED:
            self._seen.setdefault(str(document.get("_id"))[:_MAX_KEY], problem)

    @property
    def warning(self) -> str | None:
        """A sentence for ``/status``; None if all documents were sound."""
        if not self._seen:
            return None
        key, problem = next(iter(self._seen.items()))
        count = (
            f"at least {len(self._seen):,}"
            if len(self._seen) == _MOST_REMEMBERED
            else f"{len(self._seen):,}"
        )
        return (
            f"{count} damaged documents were read, with other values in place of the damaged"
            f" ones, for example _id {key[:200]!r}: {problem}. Send these objects again,"
            " or run oplog-sync"
        )


def sound_data(document: Mapping[str, Any], ms: int, damage: Damage | None) -> Document:
    """Return ``data`` of an entry or a state, with damaged members replaced.

    ``ms`` replaces an unreadable date.
    """
    data = document.get("data")
    if isinstance(data, dict) and _is_sound(data):
        return data
    given: Mapping[str, Any] = data if isinstance(data, dict) else {}
    problems: list[str] = []
    key_type, key_id = _from_key(document.get("_id"))
    type_ = _text(given.get("t"))
    if not type_:
        problems.append("data.t is missing")
        type_ = key_type or UNKNOWN
    id_ = _text(given.get("id"))
    if not id_:
        problems.append("data.id is missing")
        id_ = key_id or str(document.get("_id"))
    parents = _parents(given.get("p"), problems)
    repaired = {
        "ts": DatetimeMS(_date(given.get("ts"), ms, problems)),
        "p": parents,
        "t": type_,
        "id": id_,
    }
    if problems and damage is not None:
        damage.found(document, ", ".join(problems))
    return repaired


def sound_event(document: Mapping[str, Any]) -> str:
    event = document.get("event")
    if isinstance(event, str) and event.lower() in EVENTS:
        return event.lower()
    data = document.get("data")
    return (
        "update"
        if isinstance(data, dict) and _text(data.get("t")) and _text(data.get("id"))
        else "delete"
    )


def offset_of(document: Mapping[str, Any]) -> int:
    """Return the offset ``n``; -1 if there is none."""
    n = document.get("n")
    return int(n) if isinstance(n, int | float) else -1


def has_offset(document: Document, damage: Damage) -> bool:
    """Return whether ``n`` is an offset. A decimal one is replaced by the whole number.

    A document without an offset is no entry.
    """
    n = whole(document["n"])
    if n is None or n > MAX_OFFSET:
        damage.found(document, "n is no offset")
        return False
    document["n"] = n
    return True


def whole(value: object) -> int | None:
    """Return a whole number; None for anything else.

    Shells store whole numbers with a decimal point.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None


def milliseconds(value: object) -> int | None:
    """Return a date, or a number, as milliseconds since 1970; None for anything else."""
    if isinstance(value, DatetimeMS):
        return int(value)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and value == value
        and abs(value) < 2**63
    ):
        return int(value)
    return None


def _is_sound(data: Mapping[str, Any]) -> bool:
    ts, parents, type_, id_ = data.get("ts"), data.get("p"), data.get("t"), data.get("id")
    return (
        isinstance(ts, DatetimeMS)
        and FIRST_MS <= int(ts) <= LAST_MS
        and type(type_) is str
        and type(id_) is str
        and bool(type_ and id_)
        and (
            parents is None
            or (type(parents) is list and all(type(each) is str for each in parents))
        )
    )


def _date(value: object, ms: int, problems: list[str]) -> int:
    if isinstance(value, str):
        try:
            return int(parse_timestamp(value).timestamp() * 1000)
        except ValueError:
            value = None
    found = milliseconds(value)
    if found is None:
        problems.append("data.ts is no date")
        return min(max(ms, FIRST_MS), LAST_MS)
    if not FIRST_MS <= found <= LAST_MS:
        problems.append("data.ts lies outside the years 1 to 9999")
    return min(max(found, FIRST_MS), LAST_MS)


def _parents(value: object, problems: list[str]) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        problems.append("data.p is no list")
        return [value]
    if not isinstance(value, list):
        problems.append("data.p is no list")
        return []
    strings = [each for each in value if isinstance(each, str) and each]
    if len(strings) != len(value):
        problems.append("data.p has elements that are no strings")
    return strings


def _text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | ObjectId) and not isinstance(value, bool):
        return str(value)
    return ""


def _from_key(key: object) -> tuple[str, str]:
    """Return type and id from the key of a state."""
    if not isinstance(key, str):
        return "", ""
    type_, _, id_ = key.partition("/")
    return (type_, id_) if id_ else ("", "")
