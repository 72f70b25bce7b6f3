"""Where a consumer's stream begins: the rules of the wire contract as one function. No I/O."""

from collections.abc import Iterable
from typing import NamedTuple

from oplogd.event_id import Mark, Millis, Position
from oplogd.store import LogBounds

_FUTURE_MS = 60_000
"""A time further ahead than this was not handed out by this log: its clock or its history is another."""


class After(NamedTuple):
    """Every operation past a place in the log."""

    mark: Mark


class Since(NamedTuple):
    """The states changed at or after ``ms``, deletions too; then live."""

    ms: int


class Reset(NamedTuple):
    """``reset``, every live object; then live."""


Start = After | Since | Reset


def resolve(position: Position | None, located: LogBounds, now: int) -> Start:
    """Judge a position by what the store holds. ``located`` was asked for the position's offset, ``now`` is in ms."""
    if position is None:
        return After(located.head)
    if isinstance(position, Millis):
        # Unlike an offset, a time does not tell which of two logs it is from: in doubt `reset`, there must be no gap.
        if not position.chosen and _is_in(position.ms, located.unwritten + located.set_aside):
            return Reset()
        return _since(position.ms, position.ms, located, now)
    head, oldest = located.head, located.oldest
    whole_second = position.seconds * 1000
    if position.millis > 999 or position.offset > head.offset:
        if whole_second <= located.adopted_ms:  # an ObjectId of the first server
            return _since(whole_second, whole_second, located, now)
        return Reset()
    if located.at_ms is not None:
        return (
            After(Mark(position.offset, position.ms)) if located.at_ms == position.ms else Reset()
        )
    known_until = oldest.ms if oldest else head.ms
    if position.offset < located.first_offset or position.ms > known_until:
        return Reset()
    if _is_in(position.ms, located.unwritten):
        return Reset()  # handed out by a store of which this one is an older copy
    return _since(whole_second, position.ms, located, now)


def bridged(ms: int, located: LogBounds) -> bool:
    """Whether the states tell all that happened at or after ``ms``. 1 is the id of ``reset``: nothing came before it."""
    return ms == 1 or ms >= max(located.created_ms, located.purged_ms)


def _is_in(ms: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(after < ms < before for after, before in spans)


def _since(ms: int, asked_ms: int, located: LogBounds, now: int) -> Start:
    """The states from ``ms`` on, for a consumer that has everything up to ``asked_ms``."""
    if ms == 0 or not bridged(asked_ms, located) or ms > max(located.head.ms, now) + _FUTURE_MS:
        return Reset()
    return Since(ms if ms == 1 else max(ms, located.created_ms, located.purged_ms))
