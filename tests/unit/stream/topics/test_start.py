"""The place at which a topic's stream begins, and the gaps that are announced."""

import pytest

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.model.event_id import Mark, Millis
from oplogd.model.message_id import MAX_SEQUENCE, MessageId
from oplogd.store.topic_bounds import TopicBounds
from oplogd.stream.phases.start import (
    TopicPosition,
    TopicStart,
    sought,
    topic_resume,
    topic_start,
)

NOW = 10_000
# Entries past the front, one per mark.
MARKS = [Mark(6, 2000, 4), Mark(7, 2000, 5), Mark(8, 3000, 0), Mark(9, 3001, 65_535)]
TRIMMED = Mark(5, 2000, 3)
FRESH = Mark(0, 2000, 3)


def bounds(front: Mark, marks: list[Mark], ms: int, sequence: int) -> TopicBounds:
    """Answer as ``TopicLog.locate`` does."""
    before = [mark for mark in marks if (mark.ms, mark.sequence) <= (ms, sequence)]
    at = max([front, *before], key=lambda mark: (mark.ms, mark.sequence))
    return TopicBounds(front, marks[-1] if marks else front, at, NOW)


def start(position: TopicPosition | None, front: Mark, *, empty: bool = False) -> TopicStart:
    skipped = 0 if front.offset else TRIMMED.offset
    marks = [] if empty else [mark._replace(offset=mark.offset - skipped) for mark in MARKS]
    return topic_start(position, bounds(front, marks, *sought(position)))


def message_id(ms: int, sequence: int) -> MessageId:
    return MessageId(ms, sequence)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("front", [TRIMMED, FRESH])
@pytest.mark.parametrize(
    "position", [MessageId(2000, 2), MessageId(1999, MAX_SEQUENCE), MessageId(0, 0)]
)
def test_an_id_before_the_front_is_a_gap(position: MessageId, front: Mark, empty: bool) -> None:
    assert start(position, front, empty=empty) == TopicStart(front, reset=True)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("front", [TRIMMED, FRESH])
def test_the_id_of_the_front_is_no_gap(front: Mark, empty: bool) -> None:
    assert start(MessageId(2000, 3), front, empty=empty) == TopicStart(front, reset=False)


@pytest.mark.parametrize(
    ("position", "after"),
    [
        (MessageId(2000, 4), 6),
        (MessageId(2000, 5), 7),
        (MessageId(2000, 6), 7),
        (MessageId(2999, MAX_SEQUENCE), 7),
        (MessageId(3000, 0), 8),
        (MessageId(3001, MAX_SEQUENCE), 9),
        (MessageId(9999, 0), 9),
        (MessageId((1 << 64) - 1, MAX_SEQUENCE), 9),
        (Millis(2001), 7),
        (Millis(3000), 7),
        (Millis(3001), 8),
        (Millis(3002), 9),
        (Millis(9_999_999_999_999), 9),
    ],
)
def test_a_stream_begins_behind_the_id_or_at_the_time(position: TopicPosition, after: int) -> None:
    assert start(position, TRIMMED) == TopicStart(MARKS[after - 6], reset=False)
    fresh = start(position, FRESH)
    assert fresh == TopicStart(MARKS[after - 6]._replace(offset=after - 5), reset=False)


@pytest.mark.parametrize("ms", [1, 1999, 2000])
def test_a_time_up_to_the_front_is_a_gap_if_messages_are_gone(ms: int) -> None:
    assert start(Millis(ms), TRIMMED) == TopicStart(TRIMMED, reset=True)
    assert start(Millis(ms), FRESH) == TopicStart(FRESH, reset=False)


@pytest.mark.parametrize("front", [TRIMMED, FRESH])
def test_0_begins_at_the_oldest_message_without_reset(front: Mark) -> None:
    assert start(Millis(0), front) == TopicStart(front, reset=False)


@pytest.mark.parametrize("front", [TRIMMED, FRESH])
def test_no_position_begins_behind_the_head(front: Mark) -> None:
    assert start(None, front, empty=True) == TopicStart(front, reset=False)
    assert start(None, TRIMMED) == TopicStart(MARKS[-1], reset=False)


@pytest.mark.parametrize("mark", [TRIMMED, *MARKS])
def test_a_consumer_continues_at_a_mark_that_is_in_the_log(mark: Mark) -> None:
    found = bounds(TRIMMED, MARKS, mark.ms, mark.sequence)
    assert topic_resume(mark, found) == TopicStart(mark, reset=False)


@pytest.mark.parametrize(
    "mark",
    [
        Mark(4, 2000, 2),
        Mark(0, 1000, 0),
        Mark(7, 2000, 4),
        Mark(10, 3002, 0),
        Mark(6, 2000, 6),
        Mark(5, 2000, 2),
    ],
)
def test_a_consumer_at_another_mark_gets_reset(mark: Mark) -> None:
    found = bounds(TRIMMED, MARKS, mark.ms, mark.sequence)
    assert topic_resume(mark, found) == TopicStart(TRIMMED, reset=True)


@pytest.mark.parametrize(("past", "reset"), [(0, False), (1, True)])
def test_an_id_far_past_the_head_and_the_clock_brings_reset(past: int, reset: bool) -> None:
    position = MessageId(NOW + MAX_LEAD_MS + past, 0)
    assert start(position, TRIMMED) == TopicStart(TRIMMED if reset else MARKS[-1], reset)
