"""The search of ``oplogctl topic peek`` for the newest messages: the rules without a network."""

from hypothesis import given
from hypothesis import strategies as st

from oplogc.ctl.topic.newest import Ask, newest
from oplogc.topics import ReceivedMessage
from oplogd.model.message_id import MessageId

HARD_LIMIT = 7


class Topic:
    """A topic in memory that answers polls, and counts them."""

    def __init__(self, times: list[int]) -> None:
        self.ids = []
        for index, ms in enumerate(sorted(times)):
            self.ids.append(str(MessageId(ms, index)))
        self.polls = 0

    def poll(self, ask: Ask) -> list[ReceivedMessage]:
        self.polls += 1
        start = ask.start
        if isinstance(start, int):
            start = str(MessageId(start, 0))
        first = sum(
            start is not None and (id_ < start or (id_ == start and not ask.inclusive))
            for id_ in self.ids
        )
        limit = min(ask.limit, HARD_LIMIT)
        return [ReceivedMessage(id_, "") for id_ in self.ids[first : first + limit]]

    def newest(self, wanted: int, now_ms: int) -> list[str]:
        search = newest(wanted, now_ms)
        ask = next(search)
        while True:
            try:
                ask = search.send(self.poll(ask))
            except StopIteration as ended:
                return [message.id for message in ended.value]


@given(
    st.lists(st.integers(1, 40) | st.integers(1, 10**9), max_size=40),
    st.integers(1, 20),
    st.integers(0, 2 * 10**9),
)
def test_the_newest_messages_are_found_in_every_topic(
    times: list[int], wanted: int, now_ms: int
) -> None:
    topic = Topic(times)
    assert topic.newest(wanted, now_ms) == topic.ids[-wanted:]


def test_the_search_does_not_read_the_topic() -> None:
    """Seven days with a message each second: some 30 looks, few messages each."""
    start, week = 1_795_000_000_000, 7 * 86_400_000
    topic = Topic(list(range(start, start + week, 60_000)))
    assert topic.newest(5, start + week) == topic.ids[-5:]
    assert topic.polls < 60
