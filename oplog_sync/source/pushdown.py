"""Spark's filters as what a backend can leave out. Spark checks every row again, so a bound may be too wide."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from oplog_sync.backend import Wanted

_EQUAL = (EqualTo, EqualNullSafe)
_FROM = (*_EQUAL, GreaterThan, GreaterThanOrEqual)
_TO = (*_EQUAL, LessThan, LessThanOrEqual)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_T = TypeVar("_T", int, str)


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """All filters hold at once. What is no condition on type, event, logged, timestamp or n is left to Spark."""
    wanted = Wanted()
    for condition in filters:
        wanted = _and(wanted, condition)
    return wanted


def _and(wanted: Wanted, condition: Filter) -> Wanted:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    value: Any = getattr(condition, "value", None)
    if len(path) != 1 or value is None:
        return wanted
    match path[0]:
        case "type":
            return wanted._replace(types=_among(wanted.types, condition, value))
        case "event":
            return wanted._replace(events=_among(wanted.events, condition, value))
        case "n":
            return wanted._replace(n=_within(wanted.n, condition, value))
        # Stored times are whole milliseconds, so cutting a bound to milliseconds loses no row on either side.
        case "logged":
            return wanted._replace(
                logged=_within(wanted.logged, condition, (value - _EPOCH) // _MILLISECOND)
            )
        case "timestamp":
            text = value.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z"
            return wanted._replace(timestamp=_within(wanted.timestamp, condition, text))
    return wanted


def _among(before: frozenset[str] | None, condition: Filter, value: Any) -> frozenset[str] | None:
    if isinstance(condition, In):
        values = frozenset(value)
    elif isinstance(condition, _EQUAL):
        values = frozenset([value])
    else:
        return before
    return values if before is None else before & values


def _within(
    before: tuple[_T | None, _T | None], condition: Filter, bound: _T
) -> tuple[_T | None, _T | None]:
    low, high = before
    if isinstance(condition, _FROM):
        low = bound if low is None else max(low, bound)
    if isinstance(condition, _TO):
        high = bound if high is None else min(high, bound)
    return low, high
