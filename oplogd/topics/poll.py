"""The rules of a poll: where it starts, what is gone, how much it returns. No I/O."""

from collections.abc import Sequence
from typing import NamedTuple

from oplogd.errors import MessageError
from oplogd.message_id import MAX_SEQUENCE, MESSAGE_ID_BYTES, MessageId, stamp, unstamp
from oplogd.store.topics import EntryKind, TopicBounds, TopicEntry
from oplogd.topics.codec import Polled, PollRequest

# About this many bytes of messages are in an answer, but at least one message.
MAX_ANSWER_BYTES = 1_000_000

# Entries per read while messages that have expired are passed over.
PASSING_ENTRIES = 1_000

# Later times are as good as this one: no message has them.
_MAX_MS = (1 << 47) - 1


class Answer(NamedTuple):
    """``gap``: messages that followed the position are gone."""

    messages: list[Polled]
    gap: bool


class Begin(NamedTuple):
    """Read after the offset ``after``."""

    after: int
    gap: bool


class PollStart:
    """The start of a poll in a topic. Raises MessageError for an id of another form."""

    def __init__(self, request: PollRequest) -> None:
        self._inclusive = request.inclusive
        self._id: MessageId | None = None
        self._ms = 0
        if isinstance(request.start, bytes):
            require_id(request.start, MESSAGE_ID_BYTES)
            self._id = MessageId.of_bytes(request.start)
        elif request.start is not None:
            self._ms = min(request.start, _MAX_MS)
        self.is_oldest = request.start is None

    @property
    def sought(self) -> tuple[int, int]:
        """Return the time and sequence to locate: ``resolve`` needs the last entry up to them."""
        if self._id is not None:
            return min(self._id.ms, _MAX_MS), self._id.sequence
        if self._inclusive:
            return (self._ms - 1, MAX_SEQUENCE) if self._ms else (0, 0)
        return self._ms, MAX_SEQUENCE

    @property
    def after(self) -> MessageId | None:
        """Return the largest id before the messages wanted. None: the oldest one is wanted."""
        if self.is_oldest:
            return None
        ms, sequence = self.sought
        if self._id is not None and self._inclusive and self._id == (ms, sequence, 0, 0):
            before = stamp(ms, sequence) - 1
            ms, sequence = unstamp(before) if before >= 0 else (0, 0)
        return MessageId(ms, sequence)

    def resolve(self, bounds: TopicBounds) -> Begin:
        """Return the begin. ``bounds``: the answer to ``locate`` for ``sought``."""
        front, at = bounds.front, bounds.at
        if self._id is None:
            # A time is no place in the log, so all of its ms may be gone but one message.
            first_wanted = self._ms if self._inclusive else self._ms + 1
            return Begin(at.offset, front.offset > 0 and first_wanted <= front.ms)
        # Ids of earlier generations are smaller than the front of this one.
        gap = (self._id.ms, self._id.sequence) < (front.ms, front.sequence)
        is_there = self._id == (at.ms, at.sequence, 0, 0) and at.offset > front.offset
        return Begin(at.offset - 1 if self._inclusive and is_there else at.offset, gap)


class Void(NamedTuple):
    """No entry after the offset ``after`` up to ``upto`` is a message that can be read."""

    after: int
    upto: int

    def pass_over(self, offset: int) -> int:
        """Return the offset after which to read on."""
        return self.upto if self.after <= offset < self.upto else offset


NO_VOID = Void(0, 0)


class Gathering:
    """Collects an answer from pages of entries. ``wanted``: entries to read after ``after``.

    ``known``: entries that need no reading. ``void``: the longest row of entries that were
    read in vain; they will never be messages again.
    """

    def __init__(
        self, begin: Begin, limit: int, *, from_oldest: bool, known: Void = NO_VOID
    ) -> None:
        self.messages: list[Polled] = []
        self.after = known.pass_over(begin.after)
        self.void = known
        self._known = known
        self._message = begin.after
        self.wanted = limit
        self.gap = begin.gap
        self._limit = limit
        self._size = 0
        self._may_skip = from_oldest

    def take(self, entries: Sequence[TopicEntry]) -> bool:
        """Take a page. Return whether another one is needed.

        The first entry that is not the next one ends the answer if it has messages: the next poll
        announces the gap.
        """
        if entries and entries[0].offset != self.after + 1 and not self._may_skip:
            if self.messages:
                return False
            self.gap = True
        self._may_skip = False
        passed = False
        for entry in entries:
            self.after = entry.offset
            if entry.event != EntryKind.MESSAGE:
                passed = True
                continue
            self._message = entry.offset
            self._size += len(entry.data)
            if self.messages and self._size > MAX_ANSWER_BYTES:
                return False
            self.messages.append(Polled(id_text(entry), entry.data))
            if len(self.messages) == self._limit:
                return False
        self.wanted = PASSING_ENTRIES
        if self.after - self._message >= max(PASSING_ENTRIES, self.void.upto - self.void.after):
            self.void = Void(self._message, self.after)
        self.after = self._known.pass_over(self.after)
        return passed


def limit_of(request: PollRequest, most: int) -> int:
    """Return the number of messages that a poll may return."""
    return most if request.limit is None else min(request.limit, most)


def id_text(entry: TopicEntry) -> str:
    """Return ``str(MessageId(entry.ms, entry.sequence))``, faster."""
    return f"{entry.ms:016x}{entry.sequence:04x}00000000000000000000"


def require_id(raw: bytes, length: int) -> None:
    """Raise MessageError unless an id has this length in bytes."""
    if len(raw) != length:
        raise MessageError(
            "startFrom", f"an id of this topic is {2 * length} lower-case hexadecimal digits"
        )
