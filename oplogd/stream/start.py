"""The rules of the wire contract for the start of a stream. No I/O."""

from collections.abc import Iterable
from typing import NamedTuple

from oplogd.event_id import Mark, Millis, Position
from oplogd.store import LogBounds

# A time further ahead than this is not of this log: its clock or its history is another.
_FUTURE_MS = 60_000


class After(NamedTuple):
    """Every operation past a mark."""

    mark: Mark


class Since(NamedTuple):
    """The states changed at or after ``ms``, deleted ones too; then ``live``."""

    ms: int


class FullReplication(NamedTuple):
    """``reset`` and every live object; then ``live``."""


Start = After | Since | FullReplication


def resolve(position: Position | None, located: LogBounds, now_ms: int) -> Start:
    """Return the start for a consumer's position; None starts behind the head.

    The store was asked for the position's offset and answered ``located``.
    """
    if position is None:
        return After(located.head)
    if isinstance(position, Millis):
        # Unlike an offset, a time may be of another log. If in doubt, replicate: no gap may arise.
        if not position.chosen and _is_in(position.ms, located.unwritten + located.set_aside):
            return FullReplication()
        return _since(position.ms, position.ms, located, now_ms)
    if position.millis > 999:
        return _of_first_server(position.seconds * 1000, located, now_ms)
    return resolve_mark(Mark(position.offset, position.ms), located, now_ms)


def resolve_mark(mark: Mark, located: LogBounds, now_ms: int) -> Start:
    """Return the start for a consumer that has every operation up to ``mark``.

    The store was asked for the mark's offset and answered ``located``.
    """
    head, oldest = located.head, located.oldest
    whole_second = mark.ms // 1000 * 1000
    if mark.offset > head.offset:
        return _of_first_server(whole_second, located, now_ms)
    if located.at_ms is not None:
        return After(mark) if located.at_ms == mark.ms else FullReplication()
    known_until = oldest.ms if oldest else head.ms
    if mark.offset < located.first_offset or mark.ms > known_until:
        return FullReplication()
    if _is_in(mark.ms, located.unwritten):
        return FullReplication()  # the store is an older copy of the one that sent this id
    return _since(whole_second, mark.ms, located, now_ms)


def bridged(ms: int, located: LogBounds) -> bool:
    """Return whether the states tell every change at or after ``ms``.

    They do for 1, the id of ``reset``: nothing came before it.
    """
    return ms == 1 or ms >= max(located.created_ms, located.purged_ms)


def _of_first_server(second_ms: int, located: LogBounds, now_ms: int) -> Start:
    """Return the start for an id that this log cannot have sent; maybe the first server did."""
    if second_ms <= located.adopted_ms:
        return _since(second_ms, second_ms, located, now_ms)
    return FullReplication()


def _is_in(ms: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(after < ms < before for after, before in spans)


def _since(ms: int, asked_ms: int, located: LogBounds, now_ms: int) -> Start:
    """Return the states from ``ms`` on, for a consumer that has everything up to ``asked_ms``."""
    if ms == 0 or not bridged(asked_ms, located) or ms > max(located.head.ms, now_ms) + _FUTURE_MS:
        return FullReplication()
    return Since(ms if ms == 1 else max(ms, located.created_ms, located.purged_ms))
