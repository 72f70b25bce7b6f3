"""A topic as the origin of a read: its ends, holds and limits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from oplog_sync.topics.place import TopicMessage, TopicPlace
from oplog_sync.topics.position import OLDEST, OLDEST_ID, Position, TopicOptions, before_ms
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import Isolation

# A position as Spark keeps it: see ``Position``.
Offset = dict[str, Any]


class TopicOrigin:
    """Finds the begin and the end of batches, and lets a place plan and read them.

    Raises the errors of ``TopicPlace``.
    """

    def __init__(self, place: TopicPlace, options: TopicOptions) -> None:
        self._place = place
        self._options = options
        self._holds = options.isolation is Isolation.READ_COMMITTED
        end = options.end
        self._decided = OLDEST
        self._open_ms = -1
        self._end: MessageId | None = None
        if isinstance(end, MessageId):
            self._end = end
        elif isinstance(end, int):
            self._end = before_ms(end)

    def start(self, default: object) -> Offset:
        """Return the position before all messages that the reader gets.

        ``default``: "now" or "oldest", without the option ``start``.
        """
        bound = self._options.start if self._options.start is not None else default
        if bound == "oldest":
            return OLDEST.as_offset()
        if bound == "now":
            return self._newest().as_offset()
        if isinstance(bound, MessageId):
            return self._at(bound).as_offset()
        assert isinstance(bound, int)
        mark = self._place.locate(*before_ms(bound)[:2])
        return (Position.at(mark) if mark.offset else OLDEST).as_offset()

    def head(self) -> Offset:
        """Return the newest position, up to the first hold and the option ``end``."""
        newest = self._newest()
        found = self._past_front(self._readable(newest))
        return found._replace(store=newest.store).as_offset()

    def latest(self, after: Mapping[str, Any], limit: int | None) -> Offset:
        """Return the end of the batch after a position, of at most ``limit`` messages.

        The batch has at least one entry, so a transaction of more messages is not divided. It is
        never OLDEST: the position of a reader without any message, at the front, shows what leaves
        the topic later. The end has the store, also if it is the position itself.
        """
        begin = Position.of(after)
        if self._end is not None and begin.id >= str(self._end):
            return begin.as_offset()
        newest = self._newest()
        if begin.is_of_other(newest.store):
            begin = OLDEST  # ids of two stores do not compare
        store = newest.store or begin.store
        # Offsets of a topic created again begin anew, ids do not.
        if newest.id <= begin.id:
            return begin._replace(store=store).as_offset()
        if limit is None:
            found = self._readable(newest)
        else:
            reached = self._walk(begin, self._place.offset_at(begin), newest, limit)
            found = self._bounded(reached)
        found = max(begin, found, key=lambda position: position.id)
        return self._past_front(found)._replace(store=store).as_offset()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Divide the messages after ``start``, up to and including ``end``, into tasks."""
        begin, until = Position.of(start), Position.of(end)
        return [] if begin.id == until.id else self._place.plan(begin, until)

    def rows(self, part: InputPartition) -> Iterator[list[TopicMessage]]:
        return self._place.read(part)

    def is_past(self, position: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Return whether a position is later in the topic than another, or of another store."""
        one, than = Position.of(position), Position.of(other)
        return one.id > than.id or one.is_of_other(than.store)

    def has_left(self, position: Mapping[str, Any]) -> bool:
        """Return whether all messages up to a position have left the topic."""
        newest, reached = self._newest(), Position.of(position)
        return newest.id < reached.id or newest.is_of_other(reached.store)

    def close(self) -> None:
        self._place.close()

    def _readable(self, newest: Position) -> Position:
        """Return the position up to the first hold and the option ``end``.

        ``newest`` is read before the pointers: what is opened later lies behind it.
        """
        store = newest.store
        if self._decided.is_of_other(store):
            self._decided, self._open_ms = OLDEST, -1
        open_ms = self._place.first_open_ms() if self._holds else None
        if open_ms is not None:
            begin, after = self._decided_until(open_ms)
            if begin.id < newest.id:
                newest = self._walk(begin, after, newest)
        self._decided = newest._replace(store=store)
        return self._bounded(newest)

    def _decided_until(self, open_ms: int) -> tuple[Position, int]:
        """Return a position with no hold before it, and the offset to read on from.

        ``open_ms``: of the oldest open pointer, which may stay open long. Decisions are final, so
        what was decided at the last look still is.
        """
        decided, last_open_ms = self._decided, self._open_ms
        self._open_ms = open_ms
        if open_ms == last_open_ms or decided.ms >= open_ms:
            return decided, self._place.offset_at(decided)
        clean = self._place.locate(*before_ms(open_ms)[:2])
        return (Position.at(clean) if clean.offset else OLDEST), clean.offset

    def _newest(self) -> Position:
        head = self._place.head()
        return Position.at(head.mark)._replace(store=head.store)

    def _past_front(self, found: Position) -> Position:
        """Return the position, in place of OLDEST that at the front."""
        if found.id != OLDEST_ID:
            return found
        return self._bounded(Position.at(self._place.front()))

    def _at(self, id_: MessageId) -> Position:
        return Position(str(id_), self._place.locate(id_.ms, id_.sequence).offset, id_.ms)

    def _bounded(self, position: Position) -> Position:
        """Return the position, or that of the option ``end`` if it is earlier."""
        if self._end is not None and position.id >= str(self._end):
            return self._at(self._end)
        return position

    def _walk(
        self, begin: Position, after: int, newest: Position, limit: int | None = None
    ) -> Position:
        """Return the last position with no hold before it, and at most ``limit`` messages.

        That is ``newest`` if all entries up to there are gone.
        """
        count, reached, has_entries = 0, begin, False
        for page in self._place.walk(after, newest.offset):
            for entry in page:
                has_entries = True
                count += entry.messages
                if entry.is_held or (limit is not None and limit < count != entry.messages):
                    return reached
                reached = Position.at(entry.mark)
        return reached if has_entries else newest
