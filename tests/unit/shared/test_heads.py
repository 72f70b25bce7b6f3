"""What workers know of the logs of topics, in one process."""

from oplogd.shared.heads import HeadTables, SharedHeads
from oplogd.store.numbers import NUMBER_BITS, begin_of, log_of

BITS = 12  # small tables


def test_the_newest_offset_is_that_of_any_worker() -> None:
    tables = HeadTables(3, BITS)
    workers = [SharedHeads(tables, number) for number in range(3)]
    workers[0].show(7, 5)
    workers[2].show(7, 9)
    workers[2].show(7, 8)
    workers[1].show(8, 1)
    assert [each.newest(7) for each in workers] == [9, 9, 9]
    assert [each.newest(log) for log in (6, 8) for each in workers] == [0, 0, 0, 1, 1, 1]


def test_a_later_log_with_the_same_number_has_larger_offsets() -> None:
    tables = HeadTables(1, NUMBER_BITS)
    heads = SharedHeads(tables, 0)
    log, later = log_of(7, 0), log_of(7, 1)
    heads.show(log, 1000)
    heads.show(later, begin_of(later) + 1)
    assert heads.newest(later) == begin_of(later) + 1


def test_a_change_by_any_worker_is_a_new_number_for_all() -> None:
    tables = HeadTables(2, BITS)
    one, other = SharedHeads(tables, 0), SharedHeads(tables, 1)
    seen = [one.changes]
    for worker in (one, other, other, one):
        worker.change()
        assert one.changes == other.changes
        seen.append(one.changes)
    assert seen == sorted(set(seen))


def test_a_successor_keeps_the_heads_of_a_worker_and_follows_nothing() -> None:
    tables = HeadTables(2, BITS)
    other, killed = SharedHeads(tables, 0), SharedHeads(tables, 1)
    killed.show(7, 5)
    killed.change()
    for log in (7, 7, 8):
        killed.follow(log, 1)
    killed.follow(7, -1)
    assert [other.is_followed(log) for log in (7, 8, 9)] == [True, True, False]
    successor = SharedHeads(tables, 1)
    assert [other.is_followed(log) for log in (7, 8)] == [False, False]
    assert (successor.newest(7), successor.changes) == (5, 1)


def test_a_log_of_an_older_copy_ends_earlier_for_all_workers() -> None:
    tables = HeadTables(2, BITS)
    one, other = SharedHeads(tables, 0), SharedHeads(tables, 1)
    one.show(7, 10)
    other.show(7, 12)
    other.show(8, 12)
    one.lower(7, 5)
    assert [other.newest(log) for log in (7, 8)] == [5, 12]
    one.lower(7, 6)
    assert other.newest(7) == 5
