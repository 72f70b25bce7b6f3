"""The rules for the start of a topic's stream: its place, and whether messages are gone. No I/O."""

from typing import NamedTuple

from oplogd.model.event_id import Mark, Millis
from oplogd.model.message_id import MAX_SEQUENCE, MessageId, stamp
from oplogd.store.topic_bounds import MAX_ID_MS, TopicBounds

# A position in a topic: after a message, or from a time on.
TopicPosition = MessageId | Millis


class TopicStart(NamedTuple):
    """Every message past ``mark``. ``reset``: messages that followed the position are gone.

    Those at the front, then ``mark`` is the front. Or a forced rollback took some in the middle.
    """

    mark: Mark
    reset: bool


def sought(position: TopicPosition | None) -> tuple[int, int]:
    """Return the time and sequence for ``TopicLog.locate``: the last ones that are not wanted."""
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

    ``committed``: a reader that gets the records of a COMMIT entry one after the other. Readers of
    both isolations get those of a PUBLISH entry.
    """
    return position.is_inside and (committed or position.is_stored)


def records_wanted(
    position: TopicPosition | None, bounds: TopicBounds, *, committed: bool
) -> int | None:
    """Return the number past which a reader wants the records of ``bounds.at``, if it expands that.

    None: it has them, or its position is not at that entry.
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
