"""Turn Spark's filters into conditions for a backend.

Spark checks every row again, so a bound may be too wide.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from pyspark.sql import datasource

from oplog_sync.backend import Wanted
from oplog_sync.source.columns import milliseconds
from oplogd.model.operation import format_ms

_EQUAL = (datasource.EqualTo, datasource.EqualNullSafe)
_FROM = (*_EQUAL, datasource.GreaterThan, datasource.GreaterThanOrEqual)
_TO = (*_EQUAL, datasource.LessThan, datasource.LessThanOrEqual)

_T = TypeVar("_T", int, str)


def wanted_by(filters: Iterable[datasource.Filter]) -> Wanted:
    """Combine the filters with AND. Spark alone applies those on columns not named below."""
    wanted = Wanted()
    for condition in filters:
        wanted = _and(wanted, condition)
    return wanted


def _and(wanted: Wanted, condition: datasource.Filter) -> Wanted:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    value: Any = getattr(condition, "value", None)
    if len(path) != 1 or value is None:
        return wanted
    match path[0]:
        case "type":
            return wanted._replace(types=_among(wanted.types, condition, value))
        case "event":
            return wanted._replace(events=_among(wanted.events, condition, value))
        case "offset":
            return wanted._replace(offset=_within(wanted.offset, condition, value))
        # Stored times are whole milliseconds, so a bound cut to milliseconds loses no row.
        case "logged":
            return wanted._replace(ms=_within(wanted.ms, condition, milliseconds(value)))
        case "timestamp":
            text = format_ms(milliseconds(value))
            return wanted._replace(timestamp=_within(wanted.timestamp, condition, text))
    return wanted


def _among(
    before: frozenset[str] | None, condition: datasource.Filter, value: Any
) -> frozenset[str] | None:
    if not isinstance(condition, (datasource.In, *_EQUAL)):
        return before
    values = frozenset(value if isinstance(condition, datasource.In) else [value])
    return values if before is None else before & values


def _within(
    before: tuple[_T | None, _T | None], condition: datasource.Filter, bound: _T
) -> tuple[_T | None, _T | None]:
    low, high = before
    if isinstance(condition, _FROM):
        low = bound if low is None else max(low, bound)
    if isinstance(condition, _TO):
        high = bound if high is None else min(high, bound)
    return low, high
