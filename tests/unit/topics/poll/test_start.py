"""The start of a poll at a time, and at an id of a time that was ahead."""

import pytest

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId
from oplogd.store.topic_bounds import TopicBounds
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.poll import PollStart

FRONT_MS = 1_000


@pytest.mark.parametrize(
    ("start", "inclusive", "front_offset", "gap"),
    [
        (FRONT_MS - 1, True, 7, True),
        (FRONT_MS, True, 7, True),  # other messages of this ms may be gone
        (FRONT_MS, False, 7, False),
        (FRONT_MS + 1, True, 7, False),
        (0, True, 0, False),  # nothing is gone
    ],
)
def test_a_time_up_to_that_of_the_newest_message_that_is_gone_is_a_gap(
    start: int, inclusive: bool, front_offset: int, gap: bool
) -> None:
    front, head = Mark(front_offset, FRONT_MS), Mark(9, FRONT_MS + 5)
    bounds = TopicBounds(front, head, front, FRONT_MS + 10)
    begin = PollStart(PollRequest(start, inclusive)).resolve(bounds)
    assert (begin.after, begin.gap) == (front_offset, gap)


@pytest.mark.parametrize(
    ("ms", "gap"),
    [
        (FRONT_MS + 10 + MAX_LEAD_MS, False),
        (FRONT_MS + 11 + MAX_LEAD_MS, True),
        ((1 << 47) - 1, False),
        ((1 << 64) - 1, False),
    ],
)
@pytest.mark.parametrize("inclusive", [False, True])
def test_an_id_far_past_the_head_and_the_clock_is_a_gap(
    ms: int, inclusive: bool, gap: bool
) -> None:
    """It is from before a repair of times that were ahead. Times past all ids are no such ids."""
    front, head = Mark(7, FRONT_MS), Mark(9, FRONT_MS + 5)
    bounds = TopicBounds(front, head, head, FRONT_MS + 10)
    begin = PollStart(PollRequest(MessageId(ms, 0).to_bytes(), inclusive)).resolve(bounds)
    assert (begin.after, begin.gap) == ((7, True) if gap else (9, False))
