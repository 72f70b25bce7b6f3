"""Counts by topic: the busiest have labels, and no count is lost or goes back."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.names import TopicName
from oplogd.topics.counters import OTHER, Busiest, Counts, TopicCounters
from tests.kits.models.properties import examples


@examples()
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=60))
def test_no_count_is_lost_and_the_others_never_decrease(added: list[tuple[int, int]]) -> None:
    busiest = Busiest(labels=3)
    other = 0
    for total, (topic, count) in enumerate(added, 1):
        busiest.add(f"ns/{topic}", count)
        shown = busiest.shown()
        assert len(shown) <= 4
        assert sum(shown.values()) == sum(each for _, each in added[:total])
        assert shown[OTHER] >= other
        other = shown[OTHER]


@examples()
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=60))
def test_the_busiest_topics_have_the_labels(added: list[tuple[int, int]]) -> None:
    busiest = Busiest(labels=3)
    totals: Counter[str] = Counter()
    for topic, count in added:
        busiest.add(f"ns/{topic}", count)
        totals[f"ns/{topic}"] += count
    labelled = busiest.shown().keys() - {OTHER}
    rest = [totals[name] for name in totals.keys() - labelled]
    assert len(labelled) == min(3, len(totals))
    assert all(totals[name] >= most for name in labelled for most in rest)


def test_a_busy_topic_among_many_others_gets_a_label() -> None:
    busiest = Busiest(labels=2)
    for number in range(20_000):
        busiest.add(f"ns/{number}", 1)
        busiest.add("ns/busy", 1)
    shown = busiest.shown()
    assert shown["ns/busy"] > 19_000
    assert sum(shown.values()) == 40_000


class BrokenBusiest(Busiest):
    def add(self, name: str, count: int) -> None:
        raise RuntimeError("a fault in a figure")


def test_a_fault_in_the_figures_of_a_topic_is_logged_and_fails_no_publish_and_no_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters = TopicCounters()
    counters.published = counters.polled = BrokenBusiest()
    counters.add_published(TopicName("ns", "t"), 2)
    counters.add_polled(TopicName("ns", "t"), 3)
    assert counters.counts == Counts(publishes=1, messages_published=2, polls=1, messages_polled=3)
    assert caplog.messages == ["the figures of the busiest topics are wrong"]
