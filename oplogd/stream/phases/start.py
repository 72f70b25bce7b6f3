"""The rules for the start of a stream: of the oplog by the wire contract, of a topic. No I/O."""

from collections.abc import Iterable
from typing import NamedTuple

from oplogd.model.event_id import Mark, Millis, Position
from oplogd.model.message_id import MAX_SEQUENCE, MessageId, stamp
from oplogd.store import LogBounds
from oplogd.store.topic_bounds import MAX_ID_MS, TopicBounds

# A position in a topic: after a message, or from a time on.
TopicPosition = MessageId | Millis

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
    whole_second = mark.ms // 1000 * 1000
    if mark.offset > bounds.head.offset:
        return _of_first_server(whole_second, bounds, now_ms)
    if not is_of_history(mark, bounds):
        return FULL_REPLICATION
    if bounds.at_ms is not None:
        return After(mark)
    return _since(whole_second, mark.ms, bounds, now_ms)


def is_of_history(mark: Mark, bounds: LogBounds) -> bool:
    """Return whether the log has the entry of a mark, or may have had it before it left.

    ``bounds``: the store's answer to ``locate`` for the mark's offset.
    """
    head, oldest = bounds.head, bounds.oldest
    if bounds.at_ms is not None:
        return bounds.at_ms == mark.ms
    known_until = oldest.ms if oldest else head.ms
    if not bounds.first_offset <= mark.offset <= head.offset or mark.ms > known_until:
        return False
    # Else the store is an older copy of the one that sent this id.
    return not _is_in(mark.ms, bounds.unwritten)


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
    """Return the start at the states from ``ms`` on: it has everything up to ``asked_ms``."""
    if (
        ms == 0
        or not states_cover(asked_ms, bounds)
        or ms > max(bounds.head.ms, now_ms) + _MAX_AHEAD_MS
    ):
        return FULL_REPLICATION
    return Since(ms if ms == 1 else max(ms, bounds.created_ms, bounds.purged_ms))


class TopicStart(NamedTuple):
    """Every message past ``mark``. ``reset``: some messages behind the position are gone.

    Those at the front, then ``mark`` is the front. Or a forced rollback took some in the middle.
    """

    mark: Mark
    reset: bool


def sought(position: TopicPosition | None) -> tuple[int, int]:
    """Return the time and sequence for ``TopicLog.locate``: the last ones not wanted."""
    if position is None:
        return 0, 0
    if isinstance(position, MessageId):
        ms, sequence = position.ms, position.sequence
    else:
        ms, sequence = position.ms - 1, MAX_SEQUENCE
    if 0 <= ms <= MAX_ID_MS:
        return ms, sequence
    return 0 if ms < 0 else MAX_ID_MS, MAX_SEQUENCE


def topic_start(
    position: TopicPosition | None, bounds: TopicBounds, *, committed: bool = False
) -> TopicStart:
    """Return the start for a consumer's position; None starts behind the head.

    ``bounds``: the answer of ``locate`` for ``sought(position)``. ``committed``: see ``is_within``.
    """
    front = bounds.front
    if position is None:
        return TopicStart(bounds.head, reset=False)
    if isinstance(position, MessageId):
        gone = (position.ms, position.sequence) < (front.ms, front.sequence)
        if is_within(position, committed=committed):
            gone = gone or position[:2] == (front.ms, front.sequence)
        gone = gone or bounds.is_beyond(position.ms) or bounds.is_old(*position[:2])
    else:
        gone = 0 < position.ms <= front.ms and front.offset > bounds.begin
    if gone:
        return TopicStart(front, reset=True)
    wanted = stamp(*sought(position)) + 1
    if isinstance(position, MessageId):
        wanted -= is_within(position, committed=committed)
    return TopicStart(bounds.at, reset=position.ms > 0 and wanted <= bounds.purged)


def is_within(position: MessageId, *, committed: bool) -> bool:
    """Return whether a reader with this position wants more records of the same entry.

    ``committed``: the reader gets the records of COMMIT entries. Readers of both isolations get
    those of PUBLISH entries.
    """
    return position.is_inside and (committed or position.is_stored)


def records_wanted(
    position: TopicPosition | None, bounds: TopicBounds, *, committed: bool
) -> int | None:
    """Return the number past which a reader wants the records of ``bounds.at``, if any.

    None: it has them, or its position is not at this entry.
    """
    at = bounds.at
    if not isinstance(position, MessageId) or position[:2] != (at.ms, at.sequence):
        return None
    if at.offset <= bounds.front.offset or not (committed or is_within(position, committed=False)):
        return None
    return position.records_after


def topic_resume(mark: Mark, bounds: TopicBounds, *, inside: bool = False) -> TopicStart:
    """Return the start for a consumer with every message up to ``mark``.

    ``bounds``: the answer of ``locate`` for the mark's time and sequence. ``inside``: the consumer
    still wants records of the entry at the mark.
    """
    if bounds.at == mark and not (inside and bounds.front == mark):
        is_purged = not inside and stamp(mark.ms, mark.sequence) < bounds.purged
        return TopicStart(mark, reset=is_purged)
    # Messages behind the mark are gone, or another log has replaced the one it is from.
    return TopicStart(bounds.front, reset=True)
