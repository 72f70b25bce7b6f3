"""The search of ``oplogctl topic peek`` for the newest messages: the rules without a network."""

from hypothesis import given
from hypothesis import strategies as st

from oplogc.ctl.topic.newest import Ask, newest
from oplogc.topics import Polled, ReceivedMessage
from oplogd.model.message_id import MessageId

HARD_LIMIT = 7


class Topic:
    """A topic in memory that answers polls of a shard, and keeps them."""

    def __init__(self, times: list[int], shards: int = 1) -> None:
        self.ids = []
        for index, ms in enumerate(sorted(times)):
            self.ids.append(str(MessageId(ms, index)))
        self.shards = shards
        self.own = self.ids[::shards]
        self.asked: list[Ask] = []

    def poll(self, ask: Ask) -> Polled:
        self.asked.append(ask)
        start = ask.start
        if isinstance(start, int):
            start = str(MessageId(start, 0))
        first = sum(
            start is not None and (id_ < start or (id_ == start and not ask.inclusive))
            for id_ in self.ids
        )
        limit = min(ask.limit, HARD_LIMIT)
        read = self.ids[first:]
        found = [id_ for id_ in read if id_ in self.own][:limit]
        if len(found) == limit:
            read = read[: read.index(found[-1]) + self.shards]
        position = read[-1] if read and self.shards > 1 else None
        return Polled(tuple(ReceivedMessage(id_, "") for id_ in found), False, None, position)

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
    st.integers(1, 4),
)
def test_the_newest_messages_are_found_in_every_topic(
    times: list[int], wanted: int, now_ms: int, shards: int
) -> None:
    topic = Topic(times, shards)
    assert topic.newest(wanted, now_ms) == topic.own[-wanted:]


def test_the_next_poll_begins_behind_the_messages_of_other_shards() -> None:
    topic = Topic(list(range(1, 4 * HARD_LIMIT * 3 + 1)), 3)
    assert topic.newest(4 * HARD_LIMIT, 10**6) == topic.own
    begins = {ask.start for ask in topic.asked if isinstance(ask.start, str)}
    assert begins
    assert begins.isdisjoint(topic.own)


def test_the_search_does_not_read_the_topic() -> None:
    """Seven days with a message each second: some 30 looks, few messages each."""
    start, week = 1_795_000_000_000, 7 * 86_400_000
    topic = Topic(list(range(start, start + week, 60_000)))
    assert topic.newest(5, start + week) == topic.ids[-5:]
    assert len(topic.asked) < 60
