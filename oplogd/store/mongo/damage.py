"""Documents whose members are missing or of the wrong type, and how they are read all the same. No I/O.

The first server stored dates that cannot be written as RFC 3339, and programs beside the agents may have written anything.
One such document must neither end an agent nor stop a replication, and an entry keeps its offset, so that the log stays dense.
"""

from collections.abc import Mapping
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from oplogd.operation import EVENTS, parse_timestamp

Document = dict[str, Any]

FIRST_MS = -62_135_596_800_000
"""The beginning of the year 1 in UTC."""

LAST_MS = 253_402_300_799_999
"""The end of the year 9999 in UTC."""

UNKNOWN = "damaged"
"""The type of an object whose type cannot be read."""

_MOST_REMEMBERED = 1_000


class Damage:
    """Counts damaged documents that were read. Each is counted once, and at most 1,000 are told apart."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def found(self, document: Mapping[str, Any], problem: str) -> None:
        if len(self._seen) < _MOST_REMEMBERED:
            self._seen.setdefault(str(document.get("_id")), problem)

    @property
    def warning(self) -> str | None:
        """A sentence for /status; None if all documents were sound."""
        if not self._seen:
            return None
        key, problem = next(iter(self._seen.items()))
        count = (
            f"at least {len(self._seen):,}"
            if len(self._seen) == _MOST_REMEMBERED
            else f"{len(self._seen):,}"
        )
        return (
            f"{count} damaged documents were read with a value put in place of what is wrong, for example"
            f" _id {key[:200]!r}: {problem}. Send these objects again, or run oplog-sync"
        )


def sound_data(document: Mapping[str, Any], ms: int, damage: Damage | None) -> Document:
    """Return ``data`` of an entry or a state with sound members: ``document``'s own where nothing is wrong.

    ``ms`` takes the place of a date that cannot be read.
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
    mended = {
        "ts": DatetimeMS(_date(given.get("ts"), ms, problems)),
        "p": parents,
        "t": type_,
        "id": id_,
    }
    if problems and damage is not None:
        damage.found(document, ", ".join(problems))
    return mended


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
    """The offset ``n``; -1 if there is none."""
    n = document.get("n")
    return int(n) if isinstance(n, int | float) else -1


def whole(value: object) -> int | None:
    """A whole number, also one that was stored with a decimal point, as shells do; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None


def milliseconds(value: object) -> int | None:
    """A date as ms since 1970, also one that was stored as a number; None for anything else."""
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
    kept = [each for each in value if isinstance(each, str) and each]
    if len(kept) != len(value):
        problems.append("data.p holds something else than strings")
    return kept


def _text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | ObjectId) and not isinstance(value, bool):
        return str(value)
    return ""


def _from_key(key: object) -> tuple[str, str]:
    """Type and id from the key of a state."""
    if not isinstance(key, str):
        return "", ""
    type_, _, id_ = key.partition("/")
    return (type_, id_) if id_ else ("", "")
