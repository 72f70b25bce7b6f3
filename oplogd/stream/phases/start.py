"""The rules of the wire contract for the start of a stream. No I/O."""

from collections.abc import Iterable
from typing import NamedTuple

from oplogd.model.event_id import Mark, Millis, Position
from oplogd.store import LogBounds

# A time further ahead than this is from another log.
_MAX_AHEAD_MS = 60_000


class After(NamedTuple):
    """Every operation past a mark."""

    mark: Mark


class Since(NamedTuple):
    """The states changed at or after ``ms``, deleted ones too; then ``live``.

    None: ``reset`` and every live object; then ``live``.
    """

    ms: int | None


Start = After | Since
FULL_REPLICATION = Since(None)


def resolve(position: Position | None, bounds: LogBounds, now_ms: int) -> Start:
    """Return the start for a consumer's position; None starts behind the head.

    ``bounds``: the store's answer to ``locate`` for the position's offset.
    """
    if position is None:
        return After(bounds.head)
    if isinstance(position, Millis):
        # A time does not tell which log it is from. In doubt, replicate: it leaves no gap.
        if not position.chosen and _is_in(position.ms, bounds.unwritten + bounds.set_aside):
            return FULL_REPLICATION
        return _since(position.ms, position.ms, bounds, now_ms)
    if position.millis > 999:
        return _of_first_server(position.seconds * 1000, bounds, now_ms)
    return resolve_mark(Mark(position.offset, position.ms), bounds, now_ms)


def resolve_mark(mark: Mark, bounds: LogBounds, now_ms: int) -> Start:
    """Return the start for a consumer with every operation up to ``mark``.

    ``bounds``: the store's answer to ``locate`` for the mark's offset.
    """
    head, oldest = bounds.head, bounds.oldest
    whole_second = mark.ms // 1000 * 1000
    if mark.offset > head.offset:
        return _of_first_server(whole_second, bounds, now_ms)
    if bounds.at_ms is not None:
        return After(mark) if bounds.at_ms == mark.ms else FULL_REPLICATION
    known_until = oldest.ms if oldest else head.ms
    if mark.offset < bounds.first_offset or mark.ms > known_until:
        return FULL_REPLICATION
    if _is_in(mark.ms, bounds.unwritten):
        return FULL_REPLICATION  # the store is an older copy of the one that sent this id
    return _since(whole_second, mark.ms, bounds, now_ms)


def states_cover(ms: int, bounds: LogBounds) -> bool:
    """Return whether the states contain every change at or after ``ms``.

    They do for 1, the id of ``reset``: its consumer has nothing yet.
    """
    return ms == 1 or ms >= max(bounds.created_ms, bounds.purged_ms)


def _of_first_server(second_ms: int, bounds: LogBounds, now_ms: int) -> Start:
    """Return the start for an id of the first server or of another history."""
    if second_ms <= bounds.adopted_ms:
        return _since(second_ms, second_ms, bounds, now_ms)
    return FULL_REPLICATION


def _is_in(ms: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(after < ms < before for after, before in spans)


def _since(ms: int, asked_ms: int, bounds: LogBounds, now_ms: int) -> Start:
    """Return the start at the states from ``ms`` on.

    The consumer has everything up to ``asked_ms``.
    """
    if (
        ms == 0
        or not states_cover(asked_ms, bounds)
        or ms > max(bounds.head.ms, now_ms) + _MAX_AHEAD_MS
    ):
        return FULL_REPLICATION
    return Since(ms if ms == 1 else max(ms, bounds.created_ms, bounds.purged_ms))
