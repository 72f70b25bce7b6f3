"""The rules of a poll: its start, gaps, and size. No I/O."""

from typing import NamedTuple

from oplogd.errors import MessageError
from oplogd.model.message_id import (
    MESSAGE_ID_BYTES,
    MessageId,
    before_record,
    end_id,
    stamp,
    unstamp,
)
from oplogd.model.transaction import Isolation
from oplogd.store.topic_bounds import MAX_ID_MS, TopicBounds, is_in
from oplogd.topics.codec.codec import PollMessage, PollRequest

# About this many bytes of messages are in an answer, but at least one message.
MAX_ANSWER_BYTES = 1_000_000

# Entries per read while messages that have expired are passed over.
PASSING_ENTRIES = 1_000


class PollAnswer(NamedTuple):
    """``gap``: messages behind the position are gone.

    ``held_by``: the pointer at whose entry the answer ends, because the reader must wait for it.
    ``reached``: id up to which nothing else passes the reader's filter, or is in its shard; None:
    there is neither, or nothing was read.
    """

    messages: list[PollMessage]
    gap: bool
    held_by: int | None = None
    reached: str | None = None


class PollBegin(NamedTuple):
    """Read after the offset ``after``.

    ``has``: the reader has the next entry, or its records up to this number; None: nothing of it.
    ``may_lack``: it is no gap if the next entry is gone.
    """

    after: int
    gap: bool
    has: int | None = None
    may_lack: bool = False


class PollStart:
    """The start of a poll in a topic. Raises MessageError for an id of another form.

    ``after``: the position behind which all messages are wanted, None: from the oldest one. For
    uncommitted readers it is never within a commit.
    """

    def __init__(self, request: PollRequest) -> None:
        self._id: MessageId | None = None  # the id given by the reader
        self._first_ms = 0
        self.after: MessageId | None = None
        if isinstance(request.start, bytes):
            require_id(request.start, MESSAGE_ID_BYTES)
            self._id = id_ = _position(MessageId.of_bytes(request.start), request)
            self.after = _before(id_) if request.inclusive else _within_bounds(id_)
        elif request.start is not None:
            self._first_ms = min(request.start, MAX_ID_MS) + (not request.inclusive)
            self.after = _end_before(stamp(self._first_ms, 0))

    def doubtful(self, bounds: TopicBounds) -> MessageId | None:
        """Return the id of the reader if it may be from before a repair."""
        return self._id if self._id is not None and is_in(self._id.ms, bounds.repaired) else None

    def resolve(self, bounds: TopicBounds) -> PollBegin:
        """Return the begin. ``bounds``: the answer to ``locate`` for ``after``."""
        after, front, at = self.after, bounds.front, bounds.at
        if after is None:
            return PollBegin(0, gap=False)
        if self._id is None:
            # A time is no place in the log, so all of its ms may be gone but one message.
            purged = 0 < bounds.purged >= stamp(self._first_ms, 0)
            has_left = front.offset > bounds.begin and self._first_ms <= front.ms
            return PollBegin(at.offset, purged or has_left)
        if bounds.is_beyond(self._id.ms):
            return PollBegin(front.offset, gap=True)
        # Ids of earlier generations are smaller than the front of this one.
        place, front_place = self._id[:2], (front.ms, front.sequence)
        gap = place < front_place or (place == front_place and self._id.is_inside)
        gap = gap or stamp(*place) + (not self._id.is_inside) <= bounds.purged
        has = after.records_after
        stands = after[:2] == (at.ms, at.sequence) and at.offset > front.offset
        if has is None or not stands:
            return PollBegin(at.offset, gap)
        return PollBegin(at.offset - 1, gap, has, may_lack=not self._id.is_inside)


def limit_of(request: PollRequest, most: int) -> int:
    """Return the most messages of a poll."""
    return most if request.limit is None else min(request.limit, most)


def require_id(raw: bytes, length: int) -> None:
    """Raise MessageError unless an id has this length in bytes."""
    if len(raw) != length:
        raise MessageError(
            "startFrom", f"an id of this topic is {2 * length} lower-case hexadecimal digits"
        )


def _position(id_: MessageId, request: PollRequest) -> MessageId:
    """Return an id as its reader means it: at a commit, uncommitted readers have nothing to get."""
    if request.isolation is not Isolation.READ_UNCOMMITTED or id_.is_stored:
        return id_
    is_wanted = request.inclusive and id_[2:] == (0, 0)
    return id_ if is_wanted else end_id(id_.ms, id_.sequence)


def _before(id_: MessageId) -> MessageId:
    """Return the position behind which the message with this id is the first one."""
    if id_.write_ms:
        return _within_bounds(before_record(id_))
    if id_.payload_sequence:  # no message has this id
        return _within_bounds(id_)
    return _end_before(stamp(id_.ms, id_.sequence))


def _end_before(number: int) -> MessageId:
    """Return the position behind all messages with a smaller stamp."""
    return end_id(*unstamp(max(0, min(number, stamp(MAX_ID_MS + 1, 0)) - 1)))


def _within_bounds(id_: MessageId) -> MessageId:
    """Return an id stores can compare: no message has a later time in it."""
    if id_.write_ms > MAX_ID_MS:
        id_ = end_id(id_.ms, id_.sequence)
    return id_ if id_.ms <= MAX_ID_MS else id_._replace(ms=MAX_ID_MS)
