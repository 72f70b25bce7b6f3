"""The start of a poll at a time."""

import pytest

from oplogd.event_id import Mark
from oplogd.store.topics import TopicBounds
from oplogd.topics.codec import PollRequest
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
