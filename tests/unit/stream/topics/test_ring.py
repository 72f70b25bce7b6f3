"""The ring of a topic: expiry, voids, and messages read by id."""

import gc
import tracemalloc

import pytest

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId
from oplogd.store.topics import EntryKind, TopicEntry
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from oplogd.stream.ring.view import View
from oplogd.stream.ring.window import ENTRY_BYTES
from oplogd.stream.topic_feed import messages_after
from tests.kits.clock.virtual import VirtualClock
from tests.kits.stream.topic_worlds import told, wake_all
from tests.unit.stream.rings import Sleeper

HUGE = 10**9
START = Mark(10, 1000, 7)


class CountedClock(VirtualClock):
    def __init__(self) -> None:
        super().__init__(1000)
        self.read = 0

    def now_ms(self) -> int:
        self.read += 1
        return super().now_ms()


def make_ring(clock: VirtualClock, ttl: int | None = None) -> TopicRing:
    ring = TopicRing(SharedParts(wake_all, clock.now_ms), ttl)
    ring.restart(START)
    return ring


def entry(offset: int, ms: int, *, sequence: int = 0, expires_ms: int = 0) -> TopicEntry:
    text = f'{{"payload":"{offset}"}}'
    return TopicEntry(offset, ms, EntryKind.MESSAGE, text, sequence, expires_ms)


def void(offset: int, ms: int) -> TopicEntry:
    return TopicEntry(offset, ms, EntryKind.VOID, "", 0, 0)


def taken(view: View, after: int = START.offset) -> list[str]:
    assert isinstance(view.ring, TopicRing)
    view.ring.expire()
    chunk, count, reached = view.take(after, HUGE)
    assert count == len(told(chunk))
    assert reached == view.ring.head
    return told(chunk)


def test_messages_leave_as_soon_as_the_time_to_live_of_the_topic_has_passed() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock, ttl=1)
    view = ring.view(Filter())
    ring.append([entry(11, 1000, sequence=8), entry(12, 1001), entry(13, 1500)])
    clock.ms = 2000
    assert taken(view) == ["11", "12", "13"]
    clock.ms = 2001
    ring.expire()
    assert (ring.base, ring.window.base_mark) == (11, Mark(11, 1000, 8))
    assert not view.covers(10)
    assert taken(view, 11) == ["12", "13"]
    clock.ms = 2501
    ring.expire()
    assert (ring.base, ring.head, len(ring.window), ring.window.size) == (13, ring.head, 0, 0)
    assert view.covers(13)
    ring.append([entry(14, 2501)])
    assert taken(view, 13) == ["14"]


def test_a_message_past_its_own_time_to_live_becomes_empty_in_its_place() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock)
    views = [ring.view(Filter()) for _ in range(2)]
    ring.append([entry(11, 1000, expires_ms=1300), entry(12, 1000, expires_ms=1200)])
    ring.append([entry(13, 1001)])
    size = ring.window.size
    clock.ms = 1200
    assert [taken(view) for view in views] == [["11", "12", "13"]] * 2
    clock.ms = 1201
    assert [taken(view) for view in views] == [["11", "13"]] * 2
    assert ring.window.size < size
    clock.ms = 1301
    assert taken(views[0]) == ["13"]
    assert (ring.base, len(ring.window), ring.window.voids) == (10, 3, 2)


def test_the_shorter_time_to_live_counts() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock, ttl=1)
    ring.append([entry(11, 1000, expires_ms=9000), entry(12, 1500, expires_ms=9000)])
    clock.ms = 2001
    ring.expire()
    assert ring.base == 11
    clock.ms = 9001
    ring.expire()
    assert (ring.base, ring.window.voids) == (12, 0)


def test_nothing_asks_the_clock_while_nothing_can_expire() -> None:
    clock = CountedClock()
    ring = make_ring(clock)
    ring.append([entry(11, 1000)])
    ring.expire()
    assert clock.read == 0


@pytest.mark.parametrize("ttl", [1, 100])
def test_expired_messages_stay_expired_when_the_time_to_live_grows(ttl: int) -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock, ttl=1)
    ring.append([entry(11, 1000), entry(12, 1500)])
    clock.ms = 2001
    ring.ttl = ttl
    assert ring.base == 11
    clock.ms = 2501
    ring.expire()
    assert ring.base == (12 if ttl == 1 else 11)


def test_a_shorter_time_to_live_counts_at_once() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock, ttl=100)
    ring.append([entry(11, 1000), entry(12, 1500)])
    clock.ms = 2001
    ring.ttl = 1
    ring.expire()
    assert ring.base == 11


def test_void_entries_have_no_block_and_count_as_no_event() -> None:
    ring = make_ring(VirtualClock(1000))
    view = ring.view(Filter())
    ring.append([void(11, 1000), entry(12, 1000), void(13, 1001)])
    assert taken(view) == ["12"]
    assert view.take(12, HUGE) == (b"", 0, Mark(13, 1001))


def test_an_entry_that_has_left_the_ring_can_be_voided() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock, ttl=1)
    ring.append([entry(11, 1000), entry(12, 5000)])
    clock.ms = 2001
    ring.expire()
    for offset in (9, 10, 11, 13):
        ring.void(offset)
    assert taken(ring.view(Filter()), 11) == ["12"]
    ring.void(12)
    ring.void(12)
    assert (ring.window.voids, ring.window.size) == (1, ENTRY_BYTES)


def test_a_restarted_ring_has_forgotten_times_to_live() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock)
    ring.append([entry(11, 1000, expires_ms=1100)])
    ring.restart(START)
    ring.append([entry(11, 1000)])
    clock.ms = 2000
    assert taken(ring.view(Filter())) == ["11"]


def test_void_entries_wake_so_that_the_lag_ends() -> None:
    ring = make_ring(VirtualClock(1000))
    sleeper = Sleeper()
    ring.view(Filter()).waiting[sleeper] = None
    ring.append([void(11, 1000)])
    assert sleeper.woken == 1


IDS = [(1000, 8), (1000, 9), (1002, 0), (1002, 3), (1003, 65_535)]


@pytest.mark.parametrize("gone", [0, 2, 5])
def test_messages_are_found_by_id(gone: int) -> None:
    ring = make_ring(VirtualClock(1000))
    ring.append([entry(11 + i, ms, sequence=seq) for i, (ms, seq) in enumerate(IDS)])
    for _ in range(gone):
        ring.drop()
    base = IDS[gone - 1] if gone else START[1:]
    for ms in range(999, 1005):
        for sequence in (0, 1, 3, 7, 8, 9, 65_535):
            found = messages_after(ring, ms, sequence, 100, HUGE)
            if (ms, sequence) < base:
                assert found is None
            else:
                expected = [id_ for id_ in IDS if id_ > (ms, sequence)]
                assert found is not None
                assert [id_ for id_, _ in found.messages] == [MessageId(*id_) for id_ in expected]
                assert [data for _, data in found.messages] == [
                    f'{{"payload":"{11 + IDS.index(id_)}"}}' for id_ in expected
                ]


def test_marks_are_kept_while_many_entries_leave() -> None:
    ring = make_ring(VirtualClock(1000))
    made = [entry(11 + i, 1000 + i // 7, sequence=8 + i % 7) for i in range(1_000)]
    for each in made:
        ring.append([each])
        if len(ring.window) > 20:
            ring.drop()
        base = made[each.offset - 31] if each.offset > 30 else None
        expected = Mark(base.offset, base.ms, base.sequence) if base else START
        assert ring.window.base_mark == expected
        held = [ring.window.mark(i) for i in range(ring.window.after(0), ring.window.end)]
        assert held == [Mark(e.offset, e.ms, e.sequence) for e in made[: each.offset - 10][-20:]]


@pytest.mark.thorough
def test_times_to_live_of_entries_that_have_left_take_no_memory() -> None:
    ring = make_ring(VirtualClock(1000))

    def append(offsets: range) -> None:
        for offset in offsets:
            ring.append([entry(offset, 1000 + offset, expires_ms=HUGE + offset)])
            ring.drop()

    append(range(11, 1_000))
    gc.collect()
    tracemalloc.start()
    try:
        append(range(1_000, 5_000))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 100_000


def test_found_messages_are_bounded_in_number_and_bytes_but_at_least_one() -> None:
    ring = make_ring(VirtualClock(1000))
    ring.append([void(11, 1001), *(entry(offset, offset * 100) for offset in range(12, 20))])

    def found(limit: int, max_bytes: int) -> list[str]:
        found = messages_after(ring, 1000, 7, limit, max_bytes)
        assert found is not None
        return [data for _, data in found.messages]

    assert len(found(100, HUGE)) == 8
    assert found(2, HUGE) == ['{"payload":"12"}', '{"payload":"13"}']
    assert found(100, 1) == ['{"payload":"12"}']
    assert len(found(100, 3 * len(ring.window.frames[1]))) == 3


def test_a_ring_knows_whether_it_holds_the_oldest_message() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock)
    assert not ring.reaches_the_front()
    ring.ttl = 1
    assert not ring.reaches_the_front()
    clock.ms = 2001
    assert ring.reaches_the_front()
    ring.restart(Mark(0, 9000, 0))
    assert ring.reaches_the_front()


def test_messages_whose_stamps_are_ahead_expire_by_the_time_of_writing() -> None:
    clock = VirtualClock(1000)
    ring = make_ring(clock, ttl=1)
    view = ring.view(Filter())
    ahead = [entry(offset, HUGE + offset)._replace(written_ms=1000) for offset in (11, 12)]
    ring.append([*ahead, entry(13, HUGE + 13)._replace(written_ms=1500)])
    clock.ms = 2000
    assert len(taken(view)) == 3
    clock.ms += 1
    assert ring.has_expired(ahead[0])
    assert taken(view) == ["13"]
    clock.ms += 500
    assert taken(view) == []
    for offset in range(14, 400):
        ring.append([entry(offset, HUGE + offset)._replace(written_ms=2501)])
        clock.ms += 1
        ring.expire()
    clock.ms += 5000
    ring.expire()
    ring.append([entry(400, HUGE + 400)._replace(written_ms=clock.ms)])
    assert len(ring._written) < 200


def test_an_id_far_past_the_head_and_the_clock_is_left_to_the_store() -> None:
    ring = make_ring(VirtualClock(1000))
    assert messages_after(ring, 1000 + MAX_LEAD_MS, 0, 10, HUGE) is not None
    assert messages_after(ring, 1001 + MAX_LEAD_MS, 0, 10, HUGE) is None
