"""Rings with readers of shards: postings, the bound on numbers of shards, and cut blocks."""

import pytest

from oplogd.errors import TooManyShardsError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId
from oplogd.model.shard import MAX_TOTALS, Shard, hash_of
from oplogd.store.topics import EntryKind, TopicEntry
from oplogd.stream.ring import cuts, frames
from oplogd.stream.ring.cuts import Cut, Cuts
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.keys import is_posted_whole
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from tests.kits.models.operations import operation
from tests.unit.stream.rings import drain, follow_on, make_ring, passing, wake_all

HUGE = 10**9
TYPE = frozenset("a")
TOTALS = range(2, 2 + MAX_TOTALS)


def of(number: int, total: int) -> Filter:
    return Filter(shard=Shard(number, total))


def test_each_reader_gets_the_operations_of_its_shard_and_of_no_other() -> None:
    shards = [None, *(Shard(number, total) for total in (1, 2, 3) for number in range(total))]
    filters = [
        filter_._replace(shard=shard)
        for shard in shards
        for filter_ in (Filter(), Filter(types=TYPE), Filter(ids=frozenset("12"), types=TYPE))
    ]
    ring = make_ring()
    views = [ring.view(filter_) for filter_ in filters]
    made = [operation("update", type_, str(id_)) for type_ in "ab" for id_ in range(10)]
    entries = follow_on(ring, made)
    for view in views:
        expected = b"".join(passing(entries, view.filter))
        assert drain(view, 0) == expected, view.filter
        assert view.remaining(0)[0] == expected.count(b"\n\n")


def test_a_shard_needs_no_second_look_at_its_operations() -> None:
    assert is_posted_whole(Filter(types=TYPE, shard=Shard(0, 2)))
    assert is_posted_whole(of(0, 2))


def test_entries_with_one_posting_share_its_tuple() -> None:
    """The ring does not count the memory of these tuples."""
    ring, topic_ring = make_ring(), make_topic_ring()
    views = [ring.view(of(0, 1)), topic_ring.view(of(0, 1))]
    follow_on(ring, [operation(), operation()])
    topic_ring.append([message(11, OURS), message(12, OTHER)])
    for view in views:
        (posting,) = view.postings
        assert all(each is posting.alone for each in view.ring.window.postings)
        assert len(view.ring.window.postings) == 2


def full_ring() -> Ring:
    """Return a ring that is read in as many numbers of shards as are allowed."""
    ring = make_ring()
    for total in reversed(TOTALS):
        ring.view(of(0, total))
    return ring


def test_one_more_number_of_shards_is_refused_with_the_others() -> None:
    ring = full_ring()
    told = "16 numbers of shards already: 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17"
    with pytest.raises(TooManyShardsError, match=told):
        ring.view(of(0, 1))
    ring.view(of(1, 2))
    assert of(0, 1) not in ring.views


@pytest.mark.parametrize("left", [TOTALS[0], TOTALS[7], TOTALS[-1]])
def test_a_number_that_is_no_longer_read_makes_room(left: int) -> None:
    ring = full_ring()
    other = TOTALS[3]
    ring.view(of(1, left))
    ring.release(ring.view(of(1, other)))
    ring.release(ring.view(Filter(types=TYPE)))
    ring.release(ring.views[of(0, left)])
    with pytest.raises(TooManyShardsError):
        ring.view(of(0, 100))
    ring.release(ring.views[of(1, left)])
    ring.view(of(0, 100))
    idle = {(posting.key.type, posting.key.shard) for posting in ring.index.idle}
    assert idle == {("", Shard(1, other)), ("a", None)}, "those of other numbers are kept"
    with pytest.raises(TooManyShardsError):
        ring.view(of(0, left))


def test_nothing_of_a_shard_outlives_its_postings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.stream.ring.index.MAX_IDLE", 0)
    ring = make_ring()
    filters = [of(0, 2), of(1, 2), of(1, 3), Filter(types=TYPE, shard=Shard(1, 3))]
    for view in [ring.view(filter_) for filter_ in filters]:
        ring.release(view)
    assert (ring.index._shards, ring.index._roots) == ({}, {})
    assert not ring.index.has_shards


def make_topic_ring() -> TopicRing:
    ring = TopicRing(SharedParts(wake_all, lambda: 0), None)
    ring.restart(Mark(10, 1_000, 7))
    return ring


def message(offset: int, key: str, pointer: int | None = None) -> TopicEntry:
    kind = EntryKind.MESSAGE if pointer is None else EntryKind.DIRECT
    data = f'{{"payload":"{offset}","key":"{key}"}}'
    return TopicEntry(offset, 990 + offset, kind, data, 20_000 + offset, 0, pointer)


# The keys are of the shards 0 and 1 of 2.
OURS, OTHER = "d", "a"


def test_the_keys_are_of_both_shards() -> None:
    assert [hash_of(key) % 2 for key in (OURS, OTHER)] == [0, 1]


def test_a_topic_without_readers_of_shards_computes_no_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[str] = []

    def counted(id_: str, data: str) -> int:
        computed.append(data)
        return 0

    monkeypatch.setattr(frames, "message_hash", counted)
    ring = make_topic_ring()
    ring.view(Filter())
    ring.append([message(11, OURS)])
    assert computed == []
    ring.view(of(0, 2))
    ring.append([message(12, OURS)])
    assert len(computed) == 1


def test_the_readers_of_a_shard_are_counted_as_committed_ones_are() -> None:
    ring = make_topic_ring()
    for filter_ in (Filter(committed=True), Filter(committed=True, shard=Shard(0, 2))):
        view = ring.view(filter_)
        assert EntryKind.COMMIT in ring.expanding
        ring.release(view)
        assert ring.expanding == frozenset()


@pytest.mark.parametrize("dropped", [1, 63, 64, 65, 100])
@pytest.mark.parametrize("after", [10, 11])
def test_a_reader_behind_the_ring_that_missed_nothing_gets_to_the_base(
    dropped: int, after: int
) -> None:
    """The ring has dropped messages of other shards, and begins with one that is held."""
    ring = make_topic_ring()
    view = ring.view(Filter(committed=True, shard=Shard(0, 2)))
    last = 10 + dropped
    ring.append([message(offset, OTHER) for offset in range(11, last + 1)])
    ring.append([message(last + 1, OURS, pointer=1 << 60), message(last + 2, OURS)])
    for _ in range(dropped):
        ring.drop()
    assert view.covers(after)
    assert view.take(min(after, last), HUGE) == (b"", 0, Mark(last, 990 + last, 20_000 + last))
    assert view.held_by(last) == 1 << 60


def block(*numbers: int) -> bytes:
    return b"".join(
        b'id: %s\nevent: message\ndata: {"payload":"%d"}\n\n' % (id_of(each), each)
        for each in numbers
    )


def id_of(number: int) -> bytes:
    return str(MessageId(1_000, number)).encode()


@pytest.mark.parametrize("total", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_a_block_is_cut_to_the_messages_of_a_shard(total: int, count: int) -> None:
    made = Cuts()
    whole = block(*range(count))
    for _ in range(2):
        for number in range(total):
            own = [k for k in range(count) if hash_of(id_of(k).decode()) % total == number]
            assert made.cut(whole, Shard(number, total)) == Cut(block(*own), len(own))


def test_a_block_is_cut_once_for_the_readers_of_all_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[bytes] = []

    def counted(frame: bytes) -> int:
        looked.append(frame)
        return frames.hash_of_frame(frame)

    monkeypatch.setattr(cuts, "hash_of_frame", counted)
    made = Cuts()
    for number in range(8):
        made.cut(block(*range(9)), Shard(number, 8))
    assert len(looked) == 9


def test_cuts_are_kept_up_to_a_size_and_the_last_used_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Cuts()
    shard = Shard(0, 1)
    blocks = [block(k, k + 1) for k in range(100, 108)]
    made.cut(blocks[0], shard)
    one = made.size
    assert one >= 2 * len(blocks[0])
    monkeypatch.setattr(cuts, "_CACHED_BYTES", 4 * one)
    for each in blocks[1:4]:
        made.cut(each, shard)
    assert made.size == 4 * one
    made.cut(blocks[0], shard)
    for each in blocks[4:7]:
        made.cut(each, shard)
        assert made.size == 4 * one
    assert [key[1] for key in made._cut] == [blocks[0], *blocks[4:7]]
