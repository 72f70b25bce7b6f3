"""The safety rules: which runs are refused before anything is emitted. No I/O."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oplog_sync.errors import EXIT_TOO_MANY_CHANGES, EXIT_TOO_MANY_DELETES, RefusedError
from oplogd.errors import OperationError
from oplogd.operation import decode_row

TINY = 10
"""So many objects of a type may be corrected whatever their share: one of four settings is 25 % and no accident."""

CLOCK_TOLERANCE_SECONDS = 60
"""How far ahead of this machine's clock a row of the dump may be dated."""

_SHOWN_TYPES = 5


@dataclass(frozen=True)
class Limit:
    """How many corrections of a kind a run may emit: a number, or a percentage of the live objects compared."""

    amount: float
    is_percentage: bool

    def allows(self, count: int, live: int) -> bool:
        return count <= (live * self.amount / 100 if self.is_percentage else self.amount)

    def __str__(self) -> str:
        return f"{self.amount:g}%" if self.is_percentage else f"{self.amount:.0f}"


@dataclass
class Found:
    """The comparison of one type.

    ``live``: objects of the store; ``has_rows``: whether the dump has any of this type; ``corrections``: by event.
    """

    live: int = 0
    has_rows: bool = False
    corrections: Counter[str] = field(default_factory=Counter)


def missing_types(found: Mapping[str, Found]) -> list[str]:
    """Types with live objects of which the dump has no row."""
    return sorted(
        type_ for type_, of_type in found.items() if of_type.live and not of_type.has_rows
    )


class _Excess(NamedTuple):
    number: int
    live: int
    what: str = ""


def refuse_excess(found: Mapping[str, Found], max_deletes: Limit, max_changes: Limit) -> None:
    """Raise RefusedError unless both limits allow the corrections. ``found``: by type.

    A percentage counts for all objects and for each type with more than TINY corrections; a type that the dump does not
    name at all is never tiny. Inserts are no share of what the store has: only a number limits them, with the updates.
    """
    live = sum(each.live for each in found.values())
    deletes, updates, inserts = (
        sum(each.corrections[event] for each in found.values())
        for event in ("delete", "update", "insert")
    )
    changes = inserts + updates
    excess = _excess("delete", found, max_deletes)
    if not max_deletes.allows(deletes, live):
        excess.insert(0, _Excess(deletes, live))
    reasons: list[str] = []
    advice: list[str] = []
    if excess:
        reasons.append(
            f"{_listed(excess, 'deleted')}, more than --max-deletes {max_deletes} allows"
        )
        advice.append(f"--max-deletes {deletes}")
    code = EXIT_TOO_MANY_DELETES if excess else EXIT_TOO_MANY_CHANGES
    if max_changes.is_percentage:
        excess = _excess("update", found, max_changes)
        if updates > TINY and not max_changes.allows(updates, live):
            excess.insert(0, _Excess(updates, live))
        if excess:
            reasons.append(
                f"{_listed(excess, 'updated')}, more than --max-changes {max_changes} allows"
            )
            advice.append(f"--max-changes {changes}")
    elif not max_changes.allows(changes, live):
        reasons.append(
            f"{changes:,} objects would be inserted or updated, more than --max-changes {max_changes} allows"
        )
        advice.append(f"--max-changes {changes}")
    if reasons:
        raise RefusedError(
            code,
            f"{'; '.join(reasons)}, so nothing was emitted; "
            f"if the dump is complete and right, give {' and '.join(advice)}",
        )


def _excess(event: str, found: Mapping[str, Found], limit: Limit) -> list[_Excess]:
    """The types of which a percentage does not allow so many."""
    if not limit.is_percentage:
        return []
    excess: list[_Excess] = []
    for type_, of_type in sorted(found.items()):
        count = of_type.corrections[event]
        is_tiny = count <= TINY and of_type.has_rows
        if not is_tiny and not limit.allows(count, of_type.live):
            note = "" if of_type.has_rows else " (the dump has no row of it)"
            excess.append(_Excess(count, of_type.live, f" of type {type_}{note}"))
    return excess


def _listed(excess: list[_Excess], done: str) -> str:
    number, live, what = excess[0]
    first = f"{number:,} of {live:,} live objects{what} would be {done}"
    parts = [f"{number:,} of {live:,}{what}" for number, live, what in excess[1 : 1 + _SHOWN_TYPES]]
    if len(excess) > 1 + _SHOWN_TYPES:
        parts.append(f"{len(excess) - 1 - _SHOWN_TYPES:,} more types")
    return f"{first}, and {', '.join(parts)}" if parts else first


def dated_after(limit: str, types: Collection[str]) -> Callable[[bytes], str | None]:
    """A check of rows of the dump: a sentence for a row dated after ``limit``, a time in the stored form.

    ``types``: which count; none is all. Invalid rows pass.
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
