"""The ends of a read of a topic: positions, holds, limits, targets."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
from pyspark.sql.datasource import InputPartition

from oplog_sync.errors import MessagesGoneError, OptionError, SyncError
from oplog_sync.topics.origin import Offset, TopicOrigin
from oplog_sync.topics.place import SeenEntry, TopicHead, TopicMessage, seen_entry
from oplog_sync.topics.position import (
    OLDEST,
    Position,
    TopicOptions,
    before_ms,
    begin_in,
    offset_before,
    parse_bound,
    parse_topic,
)
from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind, Reading
from oplogd.model.message_id import MessageId, end_id, parse_message_id, record_id
from oplogd.model.names import TopicName
from oplogd.model.transaction import Isolation

NAME = TopicName("shop", "orders")
START_MS = 1_700_000_000_000
STORE, OTHER = 32 * "a", 32 * "b"


class Entries:
    """See ``TopicPlace``: entries with an offset per ms. ``held``: offsets under open pointers.

    ``gone``: number of entries that have left.
    """

    def __init__(
        self,
        *messages: int,
        held: Sequence[int] = (),
        gone: int = 0,
        store: str | None = STORE,
    ) -> None:
        self.messages = messages
        self.held = held
        self.gone = gone
        self.store = store
        self.walked = 0

    def mark(self, offset: int) -> Mark:
        return Mark(offset, START_MS + offset) if offset else Mark(0, 0)

    def head(self) -> TopicHead:
        count = len(self.messages)
        return TopicHead(self.mark(count) if count > self.gone else self.front(), self.store)

    def front(self) -> Mark:
        return Mark(self.gone, START_MS + self.gone)

    def locate(self, ms: int, sequence: int) -> Mark:
        offset = min(ms - START_MS, len(self.messages))
        return self.mark(offset if offset > self.gone else 0)

    def offset_at(self, position: Position) -> int:
        id_ = position.message_id
        return 0 if id_ is None else offset_before(id_, self.locate(id_.ms, id_.sequence))

    def first_open_ms(self) -> int | None:
        return self.mark(min(self.held)).ms if self.held else None

    def walk(self, after: int, upto: int) -> Iterator[Sequence[SeenEntry]]:
        for offset in range(max(after, self.gone) + 1, upto + 1):
            self.walked += 1
            count = self.messages[offset - 1]
            yield [SeenEntry(self.mark(offset), count, offset in self.held)]

    def plan(self, start: Position, end: Position) -> Sequence[InputPartition]:
        raise NotImplementedError

    def read(self, part: InputPartition) -> Iterator[list[TopicMessage]]:
        raise NotImplementedError

    def close(self) -> None: ...


def origin(entries: Entries, **options: Any) -> TopicOrigin:
    return TopicOrigin(entries, TopicOptions(name=NAME, **options))


def at(offset: int, store: str | None = STORE) -> Offset:
    mark = Mark(offset, START_MS + offset)
    return Position.at(mark)._replace(store=store).as_offset()


FIRST = OLDEST.as_offset()
# Of a reader that has nothing, because there was nothing.
FRONT = at(0)


def test_without_a_hold_or_limit_the_newest_entry_ends_the_batch_unseen() -> None:
    entries = Entries(1, 0, 5, 1)
    assert origin(entries).latest(at(1), None) == at(4) == origin(entries).head()
    assert origin(entries).latest(at(4), None) == at(4)
    assert entries.walked == 0


def test_a_committed_reader_ends_before_the_first_hold_and_reads_on_behind_it() -> None:
    entries = Entries(1, 1, 1, 1, 1, held=[4, 5])
    assert origin(entries).latest(at(1), None) == at(3) == origin(entries).head()
    assert entries.walked == 2, "the entries before the oldest open pointer are passed over"
    assert origin(entries).latest(at(3), None) == at(3)
    assert origin(entries).latest(at(1), 10) == at(3)
    assert origin(entries, isolation=Isolation.READ_UNCOMMITTED).latest(at(1), None) == at(5)
    entries.held = []
    assert origin(entries).latest(at(3), None) == at(5)


def test_a_reader_of_a_topic_without_a_readable_message_is_at_its_front() -> None:
    for limit in (None, 2):
        for entries in (Entries(), Entries(1, 1, held=[1])):
            assert origin(entries).latest(FIRST, limit) == FRONT == origin(entries).head()
            assert origin(entries).latest(FRONT, limit) == FRONT
        # What was published meanwhile is gone: the end tells it.
        assert origin(Entries(1, 1, gone=2)).latest(FRONT, limit) == at(2)
    assert origin(Entries(), end=START_MS).latest(FIRST, None)["id"] == str(before_ms(START_MS))


def test_another_store_ends_the_batch_in_its_topic_whatever_its_ids() -> None:
    other = Entries(1, 1, 1, held=[3], store=OTHER)
    for after in (at(1), at(2), at(9)):
        assert origin(other).latest(after, None) == at(2, OTHER)
        assert origin(other).latest(after, 1) == at(1, OTHER)
        assert origin(other).is_past(at(2, OTHER), after)
        assert origin(other).has_left(after)
    assert origin(Entries(store=OTHER)).latest(at(9), None) == at(0, OTHER)
    reader = origin(Entries(1, 1, 1, 1, held=[4]))
    assert reader.latest(FIRST, None) == at(3)
    reader._place.store, reader._place.held = OTHER, [2]  # type: ignore[attr-defined]
    assert reader.latest(at(3), None) == at(1, OTHER)


def test_an_unknown_store_counts_as_the_same() -> None:
    unnamed = Entries(1, 1, store=None)
    assert origin(Entries(1, 1)).latest(at(1, None), None) == at(2)
    assert origin(Entries(1, 1)).latest(at(2, None), None) == at(2), "its store is known now"
    assert origin(unnamed).latest(at(1), None) == at(2) == origin(unnamed).latest(at(2), None)
    assert origin(unnamed).latest(at(1, None), None) == at(2, None)
    assert not origin(unnamed).has_left(at(1))


def test_a_batch_in_another_store_is_a_gap_or_begins_with_its_oldest_message() -> None:
    one, two = (Position.of(at(offset)) for offset in (1, 2))
    fails, goes_on = (TopicOptions(name=NAME, fails_on_gap=each) for each in (True, False))
    for options in (fails, goes_on):
        for store in (STORE, None):
            assert begin_in(store, one, two, options) is one
        assert begin_in(OTHER, one._replace(store=None), two._replace(store=OTHER), options)
    for start, end in ((one, two._replace(store=OTHER)), (one, two), (OLDEST, two)):
        with pytest.raises(MessagesGoneError, match=r"topic shop/orders has another store .* gone"):
            begin_in(OTHER, start, end, fails)
    assert begin_in(OTHER, one, two._replace(store=OTHER), goes_on) == OLDEST
    assert begin_in(OTHER, one, two, goes_on) is None, "planned in the store before"


def test_a_hold_behind_a_later_position_moves_no_reader_back() -> None:
    assert origin(Entries(1, 1, 1, held=[1])).latest(at(2), None) == at(2)


@pytest.mark.parametrize(
    ("messages", "limit", "ends"),
    [
        ((1, 1, 1, 1, 1), 2, [2, 4, 5]),
        ((1, 1, 1, 1, 1), 5, [5]),
        ((1, 0, 0, 1, 0), 1, [3, 5]),
        ((1, 9, 1, 1), 3, [1, 2, 4]),
        ((9, 9), 1, [1, 2]),
        ((0, 0, 0), 1, [3]),
    ],
)
def test_a_limit_counts_messages_and_divides_no_transaction(
    messages: tuple[int, ...], limit: int, ends: list[int]
) -> None:
    entries, position, found = Entries(*messages), FIRST, []
    while (end := origin(entries).latest(position, limit)) != position:
        found.append(end["offset"])
        position = end
    assert found == ends


def test_an_end_is_never_passed() -> None:
    entries = Entries(1, 1, 1, 1, 1)
    inside = record_id(START_MS + 2, 0, 7, is_last=False)
    bounded = origin(entries, end=inside)
    end = Position(str(inside), 2, START_MS + 2, STORE).as_offset()
    assert bounded.latest(at(1), None) == end == bounded.head()
    assert bounded.latest(at(1), 9) == end
    assert bounded.latest(end, None) == end
    assert bounded.latest(at(4), None) == at(4)
    until = origin(entries, end=START_MS + 3).latest(FIRST, None)
    assert until["id"] == str(before_ms(START_MS + 3))
    assert origin(entries, end=START_MS + 9).latest(FIRST, None) == at(5)


def test_a_reader_begins_at_a_name_an_id_or_a_time() -> None:
    entries = Entries(1, 1, 1)
    assert origin(entries).start("oldest") == FIRST
    assert origin(entries).start("now") == at(3)
    assert origin(entries, start="oldest").start("now") == FIRST
    assert origin(Entries()).start("now") == FRONT
    assert origin(entries, start=START_MS + 2).start("now") == at(1, None)
    assert origin(entries, start=START_MS - 5).start("now") == FIRST
    id_ = MessageId(START_MS + 2, 0)
    expected = Position(str(id_), 2, START_MS + 2)
    assert origin(entries, start=id_).start("now") == expected.as_offset()


def test_within_a_commit_the_entry_is_read_again() -> None:
    mark = Mark(9, START_MS, 3)
    assert offset_before(record_id(START_MS, 3, 7, is_last=False), mark) == 8
    assert offset_before(record_id(START_MS, 3, 7, is_last=True), mark) == 9
    assert offset_before(MessageId(START_MS, 3), mark) == 9
    assert offset_before(record_id(START_MS, 4, 7, is_last=False), mark) == 9


@pytest.mark.parametrize(
    ("kind", "verdict", "messages", "is_held"),
    [
        (EntryKind.MESSAGE, Reading.HOLD, 1, False),
        (EntryKind.DIRECT, Reading.HOLD, 0, True),
        (EntryKind.DIRECT, Reading.PASS, 1, False),
        (EntryKind.PUBLISH, Reading.PASS, 5, False),
        (EntryKind.PUBLISH, Reading.SKIP, 0, False),
        (EntryKind.DEFERRED, Reading.HOLD, 0, False),
        (EntryKind.COMMIT, Reading.HOLD, 5, False),
        (EntryKind.ABORT, Reading.HOLD, 0, False),
    ],
)
def test_an_entry_counts_the_messages_that_a_committed_reader_gets(
    kind: EntryKind, verdict: Reading, messages: int, is_held: bool
) -> None:
    seen = seen_entry(Mark(1, 1), kind, Isolation.READ_COMMITTED, verdict, 5)
    assert (seen.messages, seen.is_held) == (messages, is_held)


def test_offsets_of_spark_hold_a_position() -> None:
    position = Position(str(end_id(START_MS, 1)), 5, START_MS)
    assert position.as_offset() == {"id": position.id, "offset": 5, "ms": START_MS}
    for each in (position, position._replace(store=STORE), OLDEST):
        assert Position.of(each.as_offset()) == each
    assert Position.of({"id": position.id}) == Position(position.id, 0, 0)
    with pytest.raises(SyncError, match=r"545b55c7f095528dd0f3863c' is not a message id"):
        Position.of({"id": "545b55c7f095528dd0f3863c"})


def test_bounds_are_names_ids_times_and_milliseconds() -> None:
    id_ = "0000019aa0a36b00000000000000000000000000"
    assert parse_bound("start", id_) == parse_message_id(id_)
    assert parse_bound("start", "oldest") == "oldest"
    assert parse_bound("end", "now") == "now"
    assert parse_bound("end", "1700000000000") == START_MS
    assert parse_bound("start", "2023-11-14T23:13:20.041+01:00") == START_MS + 41


@pytest.mark.parametrize(
    ("option", "text", "sentence"),
    [
        ("start", "yesterday", "option start: 'yesterday' is neither now, oldest, a message id"),
        ("end", "oldest", "option end: 'oldest' is neither now, a message id"),
        ("start", "545b55c7f095528dd0f3863c", "option start: .* a message id of 40 digits"),
    ],
)
def test_other_bounds_are_refused_by_the_name_of_their_option(
    option: Literal["start", "end"], text: str, sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse_bound(option, text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("orders", "option topic: 'orders' is not NAMESPACE/TOPIC"),
        ("shop/", "option topic: topic: must be"),
        ("shop/a/b", "option topic: topic: must be"),
        ("system/oplog", "option topic: system/oplog is the log of operations; leave topic out"),
    ],
)
def test_other_names_of_topics_are_refused(text: str, sentence: str) -> None:
    assert parse_topic("shop/orders") == NAME
    with pytest.raises(OptionError, match=sentence):
        parse_topic(text)
