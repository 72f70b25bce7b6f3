"""The ring of a topic when the clock steps: a step back shows again what it has hidden."""

import pytest

from oplogd.clock.ages import Ages
from oplogd.model.event_id import Mark
from oplogd.store.topics import EntryKind, TopicEntry
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from oplogd.stream.topic_feed import messages_after
from tests.kits.clock.virtual import VirtualClock
from tests.kits.stream.topic_worlds import wake_all

START = Mark(10, 1000, 7)
DAY_MS = 86_400_000


def make_ring(clock: VirtualClock, ttl: int | None = None) -> TopicRing:
    ring = TopicRing(SharedParts(wake_all, clock.now_ms), ttl)
    ring.restart(START)
    return ring


def entry(offset: int, ms: int, expires_ms: int = 0, written_ms: int = 0) -> TopicEntry:
    data = f'{{"payload":"{offset}"}}'
    return TopicEntry(offset, ms, EntryKind.MESSAGE, data, 0, expires_ms, None, written_ms)


@pytest.mark.parametrize("ttl", [None, 3600], ids=["own time to live", "of the topic"])
def test_after_a_step_back_it_begins_again_at_its_head(ttl: int | None) -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock, ttl)
    ring.append([entry(11, 1000), entry(12, 1001, expires_ms=2000), entry(13, 1002)])
    clock.jump(8 * 86_400)
    ring.expire()
    epoch, hidden = ring.epoch, entry(11 if ttl else 12, 1000, 0 if ttl else 2000)
    assert ring.has_expired(hidden)
    clock.jump(-8 * 86_400)
    assert not ring.has_expired(hidden)
    ring.expire()
    assert (ring.epoch, ring.base, ring.head.offset) == (epoch + 1, 13, 13)
    assert not ring.reaches_the_front()
    ring.append([entry(14, 1003)])
    ring.expire()
    assert (ring.epoch, ring.base, len(ring.window)) == (epoch + 1, 13, 1)


def test_it_begins_again_as_soon_as_its_head_is_not_ahead() -> None:
    """Times of writing count no longer."""
    clock = VirtualClock(1000)
    ring = make_ring(clock, 3600)
    ring.append([entry(11, DAY_MS, written_ms=1000)])
    ring.expire()
    epoch = ring.epoch
    clock.jump(86_400)
    ring.expire()
    assert (ring.epoch, ring.base) == (epoch + 1, 11)
    ring.expire()
    assert ring.epoch == epoch + 1


def test_an_entry_that_the_store_has_hidden_is_read_again_after_a_step_back() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock)
    clock.jump(8 * 86_400)
    ring.append([TopicEntry(11, 1000, EntryKind.VOID, "", 0, 2000)])
    clock.jump(-8 * 86_400)
    epoch = ring.epoch
    ring.expire()
    assert (ring.epoch, ring.base) == (epoch + 1, 11)


def test_within_a_repaired_span_only_ids_of_its_entries_are_answered_from_memory() -> None:
    ring = make_ring(VirtualClock(2000))
    ring.append([entry(11, 1100), entry(12, 1200)])
    ring.repaired = [(1150, 1300)]
    assert messages_after(ring, 1160, 0, 9, 999) is None
    for ms, left in ((1100, 1), (1120, 1), (1200, 0)):
        found = messages_after(ring, ms, 0, 9, 999)
        assert found is not None
        assert len(found.messages) == left


def test_a_step_that_makes_entries_younger_hides_none_of_them() -> None:
    clock, ages = VirtualClock(1000), Ages()
    ring = TopicRing(SharedParts(wake_all, clock.now_ms, lambda: ages), 3600)
    ring.restart(START)
    ring.append([entry(11, 1000), entry(12, 1001, expires_ms=2000)])
    epoch = ring.epoch
    clock.jump(8 * 86_400)
    ages = Ages().stepped(1001, 1001 + 8 * DAY_MS)
    ring.expire()
    assert (ring.epoch, ring.base) == (epoch + 1, 12)
    assert not ring.reaches_the_front()
    younger = entry(11, 1000, written_ms=1000 + 8 * DAY_MS)
    assert not ring.has_expired(younger)
