"""The answer of a poll, collected from pages of entries and of records. No I/O."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message import message_hash
from oplogd.model.pointer import Judge, by_decisions
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation, decode_marker
from oplogd.store.topics import TopicEntry, TopicRecord, id_of_record
from oplogd.stream.ring.frames import is_of_another
from oplogd.topics.codec.codec import PollMessage
from oplogd.topics.poll import MAX_ANSWER_BYTES, PASSING_ENTRIES, PollBegin

_PASS, _SKIP, _EXPAND, _HOLD = Reading.PASS, Reading.SKIP, Reading.EXPAND, Reading.HOLD
_UNDECIDED = by_decisions({})

# Most known rows of a topic. The longest ones stay.
MAX_ROWS = 32


class Void(NamedTuple):
    """The entries after the offset ``after`` up to ``upto`` have nothing for some readers."""

    after: int
    upto: int

    @property
    def length(self) -> int:
        return self.upto - self.after


class Voids(NamedTuple):
    """Rows without overlap or contact, ascending."""

    rows: tuple[Void, ...] = ()

    def pass_over(self, offset: int) -> int:
        """Return the offset after which to read on."""
        index = bisect_right(self.rows, offset, key=lambda row: row.after) - 1
        return max(offset, self.rows[index].upto) if index >= 0 else offset

    def adding(self, row: Void) -> "Voids":
        """Return these rows and another one, united where they overlap or touch."""
        apart = [each for each in self.rows if each.upto < row.after or row.upto < each.after]
        together = [row, *(each for each in self.rows if each not in apart)]
        whole = Void(min(each.after for each in together), max(each.upto for each in together))
        rows = [*apart, whole]
        if len(rows) > MAX_ROWS:
            rows.remove(min(rows, key=lambda each: each.length))
        return Voids(tuple(sorted(rows)))


NO_VOIDS = Voids()


class Gathering:
    """Collects an answer: the caller reads ``wanted`` entries after ``after`` while ``is_open``.

    ``known``: entries to skip unread. ``voids``: the same, and long rows of entries that were
    read in vain. They will never have anything for readers of this isolation without a snapshot.
    ``held_by`` and ``reached``: see ``PollAnswer``. ``has_snapshot``: the reader has read LATE
    entries at their first places. ``shard``: messages of others are left out.
    """

    def __init__(
        self,
        begin: PollBegin,
        limit: int,
        isolation: Isolation,
        *,
        from_oldest: bool,
        known: Voids = NO_VOIDS,
        has_snapshot: bool = False,
        shard: Shard | None = None,
    ) -> None:
        self.messages: list[PollMessage] = []
        self.gap = begin.gap
        self.held_by: int | None = None
        self.reached: str | None = None
        self.is_open = True
        self.after = known.pass_over(begin.after)
        self.voids = known
        self._isolation = isolation
        self._has_snapshot = has_snapshot
        self._shard = shard
        self._limit = limit
        self._size = 0
        self._may_skip = from_oldest
        # The entry at which the position stands (0: none), and the reader's last record.
        self._at = 0 if begin.has is None else begin.after + 1
        self._has = -1 if begin.has is None else begin.has
        self.wanted = limit if shard is None else PASSING_ENTRIES
        if self._at:
            self.wanted = self.wanted + 1 if known.pass_over(self._at) == self._at else 1
        # A larger offset than this is a gap.
        self._due = self.after + 1 + (begin.may_lack and self.after == begin.after)
        # Offset of the last entry with something for the reader.
        self._found = begin.after

    @property
    def room(self) -> int:
        """The number of messages the answer may still get."""
        return self._limit - len(self.messages)

    def take(
        self, entries: Sequence[TopicEntry], judge: Judge = _UNDECIDED
    ) -> Iterator["PollExpansion"]:
        """Take a page. Yield each expanding entry: the caller reads its records first.

        ``judge``: of a committed reader. At a gap an answer with messages ends.
        """
        self.is_open = passed = False
        if entries and entries[0].offset > self._due and not self._may_skip:
            if self.messages:
                return
            self.gap = True
        self._may_skip = False
        add, at = self.add, self._at
        kind, of_kind = "", _SKIP
        for entry in entries:
            self.after = offset = entry.offset
            if entry.event != kind:
                kind, of_kind = entry.event, reading(entry.event, self._isolation)
                if kind == EntryKind.LATE and self._has_snapshot:
                    of_kind = _SKIP
            how = of_kind
            if how is _HOLD:
                how = self._judged(entry, judge)
                if how is _HOLD:
                    self.held_by = entry.pointer
                    return
            if how is _PASS:
                self._found = offset
                if offset == at:
                    passed = True
                elif not add(  # ``str(MessageId(ms, sequence))``, faster
                    f"{entry.ms:016x}{entry.sequence:04x}00000000000000000000", entry.data
                ):
                    return
                continue
            passed = True
            if how is _EXPAND:
                expansion = PollExpansion(self, entry, self._has if offset == at else -1)
                yield expansion
                if expansion.is_fruitful:
                    self._found = offset
                if expansion.is_cut:
                    return
        if self.after - self._found >= PASSING_ENTRIES:
            self.voids = self.voids.adding(Void(self._found, self.after))
        self.after = self.voids.pass_over(self.after)
        self._due = self.after + 1
        self.wanted = PASSING_ENTRIES
        # A page may be short because of the bytes of entries not for the reader.
        reads_on = self._isolation is Isolation.READ_COMMITTED or self._shard is not None
        self.is_open = passed or (bool(entries) and reads_on)

    def _judged(self, entry: TopicEntry, judge: Judge) -> Reading:
        """Return the way in which a committed reader reads an entry with a pointer."""
        if entry.offset == self._at and entry.event == EntryKind.DIRECT:
            return _PASS  # the reader has it
        if self._shard is not None and is_of_another(self._shard, entry):
            self._found = entry.offset  # the readers of its shard may get it
            return _SKIP
        assert entry.pointer is not None
        return reading(entry.event, self._isolation, judge(entry.pointer))

    def add(self, id_: str, data: str) -> bool:
        """Add a message, unless it makes the answer too long. Return whether more may follow."""
        messages = self.messages
        if self._shard is None or self._shard.has(message_hash(id_, data)):
            self._size += len(data)
            if self._size > MAX_ANSWER_BYTES and messages:
                return False
            messages.append(PollMessage(id_, data))
        self.reached = id_
        return len(messages) < self._limit


class PollExpansion:
    """The records of one entry: the caller reads ``wanted`` ones past ``after`` while ``is_open``.

    ``is_cut``: the answer takes no more. ``is_fruitful``: another reader may get records here.
    ``lacks``: records are gone. The caller calls ``lose``, unless the entry was rolled back.
    """

    def __init__(self, gathering: Gathering, entry: TopicEntry, has: int) -> None:
        marker = decode_marker(entry.data)
        self.entry = entry
        self.after = has
        self.wanted = gathering.room
        self.is_open = has < marker.last
        self.is_cut = self.lacks = False
        self.is_fruitful = has >= 0
        self._gathering = gathering
        self._last = marker.last
        # Records still to come. They are known only if all of them are read.
        self._missing = marker.records if has < 0 else 0

    def take(self, records: Sequence[TopicRecord]) -> None:
        """Take a page. Records past their own time to live are not gone."""
        entry, gathering = self.entry, self._gathering
        for number, data, _ in records:
            if data:
                self.is_fruitful = True
                self.is_cut = not gathering.add(str(id_of_record(entry, number, self._last)), data)
            self.after = number
            self._missing -= 1
            if self.is_cut:
                break
        self.wanted = PASSING_ENTRIES
        ended = not records or self.after >= self._last
        self.lacks = ended and (self.after < self._last or self._missing > 0)
        self.is_open = not ended and not self.is_cut

    def lose(self) -> None:
        """Announce the records that are gone."""
        self.is_fruitful = self._gathering.gap = True
