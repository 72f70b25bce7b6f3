"""Rollbacks and decisions of pointers with many entries: a ring does not go through all of them."""

import pytest

from oplogd.model.event_id import Mark
from oplogd.model.pointer import Voided, encode_voided
from oplogd.model.transaction import Marker, encode_marker
from oplogd.store.topics import EntryKind, TopicEntry
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from tests.kits.stream.topic_worlds import wake_all

P = 5
MOST = 10
START = Mark(0, 0, 0)


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> TopicRing:
    monkeypatch.setattr("oplogd.stream.ring.topic_ring._MOST_CHANGED", MOST)
    ring = TopicRing(SharedParts(wake_all, lambda: 1000), None)
    ring.restart(START)
    ring.view(Filter(committed=True))
    return ring


def publish(ring: TopicRing, count: int) -> None:
    first = ring.head.offset + 1
    ring.append(
        TopicEntry(offset, 1000, EntryKind.DIRECT, '{"payload":""}', offset, 0, P)
        for offset in range(first, first + count)
    )


def follow(ring: TopicRing, kind: EntryKind, *data: str) -> None:
    first = ring.head.offset + 1
    ring.append(
        TopicEntry(first + k, 1000, kind, text, first + k, 0) for k, text in enumerate(data)
    )


def voided(first: int, count: int, *, is_gap: bool = False) -> str:
    return encode_voided(Voided(str(P), [(first, count)], is_gap))


MARKER = encode_marker(Marker(str(P), 0))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (EntryKind.VOID, [voided(1, MOST)]),
        (EntryKind.VOID, [voided(1, MOST // 2), voided(MOST // 2 + 1, MOST // 2)]),
        (EntryKind.ABORT, [MARKER]),
        (EntryKind.COMMIT, [MARKER]),
    ],
)
@pytest.mark.parametrize("more", [0, 1])
def test_a_ring_begins_anew_where_it_would_change_more_than_some_thousand_entries(
    ring: TopicRing, kind: EntryKind, data: list[str], more: int
) -> None:
    publish(ring, MOST + more)
    if more and kind is EntryKind.VOID:
        data = [*data, voided(MOST + 1, 1)]
    epoch = ring.epoch
    follow(ring, kind, *data)
    assert ring.head.offset == MOST + more + len(data)
    assert ring.epoch == epoch + more
    assert ring.base == (ring.head.offset if more else 0)


def test_what_a_ring_has_dropped_needs_no_change(ring: TopicRing) -> None:
    publish(ring, 3 * MOST)
    for _ in range(2 * MOST):
        ring.drop()
    epoch = ring.epoch
    follow(ring, EntryKind.VOID, voided(1, 3 * MOST))
    assert ring.epoch == epoch
    assert not any(ring.window.frames[ring.window.after(2 * MOST) :])
