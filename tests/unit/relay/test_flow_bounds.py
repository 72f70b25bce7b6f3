"""The bounds of the rows that a leader holds: in all, of a key, and of their sizes."""

from collections.abc import Iterable

from oplog_relay import Limits, Row
from oplog_relay.leader.blocked import BlockedKeys
from oplog_relay.leader.flow import Flow, Request
from tests.kits.relay.running import row as _row


def _flow(limits: Limits = Limits(in_flight=10, mark=5, batch=3, shards=1)) -> Flow:  # noqa: B008
    return Flow(limits, BlockedKeys((1.0, 4.0)))


def _mark(flow: Flow, rows: Iterable[Row]) -> None:
    flow.begin_mark()
    assert flow.end_mark([*rows], 0.0) is None


def _take(flow: Flow) -> Request:
    request = flow.take(0)
    assert request is not None
    return request


def _ids(request: Request | None) -> list[int]:
    return [row.id for row in request.rows] if request else []


def _purge(flow: Flow) -> None:
    flow.purged(flow.to_purge(0.0), 0.0)


def test_there_is_room_while_one_more_mark_fits() -> None:
    flow = _flow()
    _mark(flow, map(_row, range(1, 6)))
    assert flow.has_room()
    _mark(flow, [_row(6)])
    assert not flow.has_room()
    flow.accept(_take(flow))
    assert not flow.has_room()
    _purge(flow)
    assert flow.has_room()
    assert (flow.in_flight, flow.in_flight_keys) == (3, 3)


def test_a_mark_that_is_larger_than_the_bound_is_cut() -> None:
    flow = _flow(Limits(in_flight=10, mark=100))
    assert flow.has_room()
    assert flow.begin_mark() == 10


def test_the_keys_of_long_queues_are_full_and_the_less_room_is_left_the_shorter_they_may_be() -> (
    None
):
    flow = _flow(Limits(in_flight=100, mark=50))
    _mark(flow, [_row(id, "a") for id in range(1, 12)])
    assert flow.full_keys() == []  # an eighth of 89
    _mark(flow, [_row(12, "a"), *(_row(id, "b") for id in range(13, 20))])
    assert flow.full_keys() == ["a"]
    _mark(flow, [_row(id, f"k{id % 10}") for id in range(20, 60)])
    assert flow.full_keys() == ["a", "b"]


def test_a_key_with_one_row_is_full_when_no_room_is_left() -> None:
    flow = _flow()
    _mark(flow, map(_row, range(1, 6)))
    assert flow.full_keys() == ["k1", "k2", "k3", "k4", "k5"]
    _purge(flow)


def test_a_request_carries_few_large_rows_and_always_one() -> None:
    flow = _flow()
    sizes = (900, 900, 900, 3000, 1)
    large = [_row(n)._replace(value="x" * 1024 * size) for n, size in enumerate(sizes, 1)]
    _mark(flow, large)
    assert [_ids(flow.take(0)) for _ in range(4)] == [[1, 2], [3], [4], [5]]


def test_after_large_rows_a_mark_is_small_and_none_begins_while_too_much_is_held() -> None:
    flow = _flow(Limits(in_flight=1000, mark=100, batch=100, shards=1))
    large = "x" * 1024 * 1024
    for first in range(1, 65, 8):
        assert flow.has_room()
        assert flow.begin_mark() == (100 if first == 1 else 8)
        assert flow.end_mark([_row(first + n)._replace(value=large) for n in range(8)], 0.0) is None
    assert flow.has_room()
    _mark(flow, [_row(100), _row(101)])
    assert not flow.has_room()
    assert flow.begin_mark() == 100
    flow.accept(_take(flow))
    _purge(flow)
    assert flow.has_room()
