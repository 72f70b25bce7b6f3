"""The safety rules: they stop a suspicious run before anything is emitted. No I/O."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oplog_kit.wording import counted
from oplog_sync.errors import (
    EXIT_OLD_DUMP,
    EXIT_TOO_MANY_CHANGES,
    EXIT_TOO_MANY_DELETES,
    SafetyRuleError,
)
from oplogd.errors import OperationError
from oplogd.model.operation import decode_row, format_ms

# Corrections of one type that are allowed at any share: one of four settings is 25 %, no accident.
TINY = 10

# A row of the dump may be dated this far ahead of this machine's clock.
CLOCK_TOLERANCE_SECONDS = 60

_SHOWN_TYPES = 5


@dataclass(frozen=True)
class Limit:
    """The most corrections of a run: a number, or a percentage of the live objects compared."""

    amount: float
    is_percentage: bool

    def allows(self, count: int, live: int) -> bool:
        return count <= (live * self.amount / 100 if self.is_percentage else self.amount)

    def __str__(self) -> str:
        return f"{self.amount:g}%" if self.is_percentage else f"{self.amount:.0f}"


@dataclass
class TypeCounts:
    """The comparison of one type. ``live``: objects in the store. ``has_rows``: in the dump.

    ``corrections``: number by event.
    """

    live: int = 0
    has_rows: bool = False
    corrections: Counter[str] = field(default_factory=Counter)


class _Excess(NamedTuple):
    number: int
    live: int
    of_type: str = ""


def refuse_excess(found: Mapping[str, TypeCounts], max_deletes: Limit, max_changes: Limit) -> None:
    """Raise SafetyRuleError unless both limits allow the corrections. ``found``: by type.

    A percentage applies to all objects together and to each type with more than TINY corrections,
    or without rows in the dump. Only a number limits inserts, together with the updates: they are
    no share of the store.
    """
    changes = _total("insert", found) + _total("update", found)
    reasons: list[str] = []
    advice: list[str] = []
    code = EXIT_TOO_MANY_CHANGES
    if excess := _excess("delete", found, max_deletes):
        code = EXIT_TOO_MANY_DELETES
        deletes = _listed(excess, "deleted")
        reasons.append(f"{deletes}, more than --max-deletes {max_deletes} allows")
        advice.append(f"--max-deletes {_total('delete', found)}")
    many = ""
    if max_changes.is_percentage:
        if excess := _excess("update", found, max_changes, TINY):
            many = _listed(excess, "updated")
    elif changes > max_changes.amount:
        many = f"{counted(changes, 'object')} would be inserted or updated"
    if many:
        reasons.append(f"{many}, more than --max-changes {max_changes} allows")
        advice.append(f"--max-changes {changes}")
    if reasons:
        raise SafetyRuleError(
            code,
            f"{'; '.join(reasons)}, so nothing was emitted; "
            f"if the dump is complete and right, give {' and '.join(advice)}",
        )


def refuse_old(found: Mapping[str, TypeCounts], newest_ms: int | None, purged_ms: int) -> None:
    """Raise SafetyRuleError if inserts may bring back objects deleted after the dump was made.

    ``newest_ms``: time of the dump's newest row, None if it cannot be trusted. ``purged_ms``: see
    LogBounds.
    """
    inserts = _total("insert", found)
    if inserts and purged_ms and (newest_ms is None or newest_ms < purged_ms):
        dated = "in the future" if newest_ms is None else format_ms(newest_ms)
        raise SafetyRuleError(
            EXIT_OLD_DUMP,
            f"the newest row of the dump is dated {dated}, and the store has "
            f"forgotten deletions until {format_ms(purged_ms)}, so {counted(inserts, 'insert')} "
            "might bring deleted objects back and nothing was emitted; make a new dump, or give "
            "--allow-old-dump",
        )


def _total(event: str, found: Mapping[str, TypeCounts]) -> int:
    return sum(each.corrections[event] for each in found.values())


def _excess(
    event: str, found: Mapping[str, TypeCounts], limit: Limit, tiny: int = 0
) -> list[_Excess]:
    """Return the total if it is above ``tiny`` and the limit, and the types above a percentage."""
    live, total = sum(each.live for each in found.values()), _total(event, found)
    excess = [_Excess(total, live)] if total > tiny and not limit.allows(total, live) else []
    for type_, of_type in sorted(found.items()) if limit.is_percentage else ():
        count = of_type.corrections[event]
        is_tiny = count <= TINY and of_type.has_rows
        if not is_tiny and not limit.allows(count, of_type.live):
            note = "" if of_type.has_rows else " (the dump has no row of it)"
            excess.append(_Excess(count, of_type.live, f" of type {type_}{note}"))
    return excess


def _listed(excess: list[_Excess], done: str) -> str:
    number, live, of_type = excess[0]
    first = f"{number:,} of {counted(live, 'live object')}{of_type} would be {done}"
    shown, more = excess[1 : 1 + _SHOWN_TYPES], len(excess) - 1 - _SHOWN_TYPES
    parts = [f"{number:,} of {live:,}{of_type}" for number, live, of_type in shown]
    if more > 0:
        parts.append(counted(more, "more type"))
    return f"{first}, and {', '.join(parts)}" if parts else first


def dated_after(limit: str, types: Collection[str]) -> Callable[[bytes], str | None]:
    """Return a check of dump rows: a sentence for a row dated after ``limit``, else None.

    ``limit``: a time in the stored form. ``types``: empty: all. Invalid rows pass.
    """

    def check(raw: bytes) -> str | None:
        try:
            data = decode_row(raw)
        except OperationError:
            return None
        if data.timestamp <= limit or (types and data.type not in types):
            return None
        return f"{data.type}/{data.id} is dated {data.timestamp}"

    return check
