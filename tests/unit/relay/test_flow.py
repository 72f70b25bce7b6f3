"""The rows that a leader holds: order per key, batches, bounds, blocked keys."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog_relay import Limits, Row
from oplog_relay.leader.blocked import BlockedKeys
from oplog_relay.leader.flow import Flow, Request
from tests.kits.models.properties import examples
from tests.kits.relay.world import NOON

_ONE_SHARD = Limits(in_flight=10, mark=5, batch=3, shards=1)


def _row(id: int, key: str = "", topic: str = "orders", fault: str = "") -> Row:
    return Row(id, NOON, topic, key or f"k{id}", "{}", fault=fault)


def _flow(limits: Limits = _ONE_SHARD) -> tuple[Flow, BlockedKeys]:
    blocked = BlockedKeys((1.0, 4.0))
    return Flow(limits, blocked), blocked


def _mark(flow: Flow, rows: Iterable[Row], now: float = 0.0) -> None:
    flow.begin_mark()
    assert flow.end_mark([*rows], now) is None


def _take(flow: Flow, shard: int = 0) -> Request:
    request = flow.take(shard)
    assert request is not None
    return request


def _ids(request: Request | None) -> list[int]:
    return [row.id for row in request.rows] if request else []


def _purge(flow: Flow) -> None:
    flow.purged(flow.to_purge(0.0), 0.0)


def test_a_request_carries_rows_of_one_topic_up_to_the_batch() -> None:
    flow, _ = _flow()
    _mark(flow, [_row(1), _row(2, topic="a/b"), _row(3), _row(4), _row(5)])
    assert [_ids(flow.take(0)) for _ in range(4)] == [[1, 3, 4], [2], [5], []]


def test_the_next_row_of_a_key_waits_for_the_purge_of_the_one_before() -> None:
    flow, _ = _flow()
    _mark(flow, [_row(1, "a"), _row(2, "a", "other"), _row(3, "b")])
    request = _take(flow)
    assert _ids(request) == [1, 3]
    flow.accept(request)
    assert flow.take(0) is None
    rows = flow.to_purge(0.0)
    assert flow.take(0) is None
    flow.purged(rows, 0.0)
    assert _ids(flow.take(0)) == [2]


def test_one_purge_takes_all_acknowledged_rows() -> None:
    flow, _ = _flow()
    _mark(flow, map(_row, range(1, 6)))
    flow.accept(_take(flow))
    flow.accept(_take(flow))
    assert [row.id for row in flow.to_purge(0.0)] == [1, 2, 3, 4, 5]
    assert flow.to_purge(0.0) == []


@pytest.mark.parametrize("step", ["queued", "sent", "acknowledged", "in a purge"])
def test_a_mark_with_the_id_of_a_row_that_is_held_confuses_the_flow(step: str) -> None:
    flow, _ = _flow()
    _mark(flow, [_row(1, "a")])
    steps = ["queued", "sent", "acknowledged", "in a purge"]
    again = _row(1, "b")
    for each in steps:
        if each == step:
            flow.begin_mark()
            assert flow.end_mark([_row(7), again], 0.0) is again
        if each == "queued":
            request = _take(flow)
        elif each == "sent":
            flow.accept(request)
        elif each == "acknowledged":
            rows = flow.to_purge(0.0)
    flow.purged(rows, 0.0)
    assert (flow.take(0), flow.in_flight, flow.in_flight_keys) == (None, 0, 0)


def test_a_row_with_the_id_of_one_that_is_purged_while_its_mark_is_under_way_is_queued() -> None:
    flow, _ = _flow()
    _mark(flow, [_row(1, "a"), _row(2, "b")])
    flow.accept(_take(flow))
    flow.begin_mark()
    _purge(flow)
    assert flow.end_mark([_row(1, "a")], 0.0) is None
    assert (_ids(flow.take(0)), flow.in_flight) == ([1], 1)


def test_rows_that_were_not_sent_are_sent_again_first() -> None:
    flow, _ = _flow()
    _mark(flow, map(_row, range(1, 6)))
    request = _take(flow)
    flow.give_back(request)
    assert flow.woken() == {0}
    assert [_ids(flow.take(0)) for _ in range(2)] == [[1, 2, 3], [4, 5]]


def test_a_row_waits_only_while_it_is_the_first_of_its_key() -> None:
    flow, _ = _flow()
    _mark(flow, [_row(1, "a"), _row(2, "a")], 10.0)
    assert flow.oldest_wait(15.0) == 5.0
    flow.accept(_take(flow))
    flow.purged(flow.to_purge(0.0), 16.0)
    assert flow.oldest_wait(17.0) == 1.0
    flow.restart_waits(20.0)
    assert flow.oldest_wait(21.0) == 1.0
    flow.accept(_take(flow))
    flow.purged(flow.to_purge(0.0), 22.0)
    assert flow.oldest_wait(99.0) == 0.0


# Refused rows


def test_rows_of_a_refused_batch_are_sent_alone_in_turn_with_batches() -> None:
    flow, blocked = _flow()
    _mark(flow, map(_row, range(1, 6)))
    assert flow.refuse(_take(flow), "no", 0.0, NOON) is None
    assert [_ids(flow.take(0)) for _ in range(5)] == [[1], [4, 5], [2], [3], []]
    assert len(blocked) == 0


def test_a_refused_row_blocks_its_key_only_and_its_rows_are_not_held() -> None:
    flow, blocked = _flow()
    _mark(flow, [_row(1, "a"), _row(2, "a"), _row(3, "b"), _row(4, "a")])
    request = _take(flow)
    flow.refuse(request, "no", 0.0, NOON)
    refusal = flow.refuse(_take(flow), "no such topic", 0.0, NOON)
    assert refusal is not None
    assert (refusal.blocked.id, refusal.blocked.reason) == (1, "no such topic")
    assert flow.in_flight == 1
    _mark(flow, [_row(5, "a"), _row(6, "b")])
    assert _ids(flow.take(0)) == [3]
    assert flow.in_flight == 2
    assert [each.key for each in blocked.rows()] == ["a"]


def _block(flow: Flow, behind: int = 0) -> None:
    """Block the key a with row 1; rows 2 and on are behind it."""
    _mark(flow, [_row(id, "a") for id in range(1, 2 + behind)])
    flow.refuse(_take(flow), "no", 0.0, NOON)


def test_a_blocked_row_comes_back_alone_and_frees_its_key_after_the_reset() -> None:
    flow, blocked = _flow()
    _block(flow, behind=2)
    assert blocked.due(0.9) == []
    assert [row.id for row in blocked.due(1.0)] == [1]
    assert blocked.due(9.0) == []
    _mark(flow, [_row(1, "a"), _row(7, "a"), _row(8, "b")])
    request = _take(flow)
    assert [_ids(request), _ids(flow.take(0))] == [[1], [8]]
    flow.accept(request)
    assert blocked.to_reset() == []
    _purge(flow)
    assert blocked.to_reset() == ["a"]
    _mark(flow, [_row(9, "a")])
    assert "a" in blocked
    blocked.unblock("a")
    assert (len(blocked), blocked.to_reset()) == (0, [])
    _mark(flow, [_row(2, "a"), _row(3, "a"), _row(7, "a"), _row(9, "a")])
    assert _ids(flow.take(0)) == [2]


def test_a_key_without_rows_behind_is_free_at_once() -> None:
    flow, blocked = _flow()
    _block(flow)
    blocked.due(1.0)
    _mark(flow, [_row(1, "a")])
    flow.accept(_take(flow))
    _purge(flow)
    assert (len(blocked), blocked.to_reset()) == (0, [])


@pytest.mark.parametrize(
    "marked",
    [[], [_row(5)], [_row(5), _row(6), _row(7), _row(8), _row(9)]],
    ids=["empty", "few rows", "a full mark past it"],
)
def test_a_key_is_free_once_a_mark_shows_that_its_row_was_skipped(marked: list[Row]) -> None:
    flow, blocked = _flow()
    _block(flow, behind=1)
    _mark(flow, [])
    assert blocked.to_reset() == []
    blocked.due(1.0)
    _mark(flow, marked)
    assert blocked.to_reset() == ["a"]


def test_a_full_mark_before_the_row_does_not_show_that_it_was_skipped() -> None:
    blocked = BlockedKeys((1.0, 4.0))
    flow = Flow(_ONE_SHARD, blocked)
    _mark(flow, [_row(100, "a"), _row(101, "a")])
    flow.refuse(_take(flow), "no", 0.0, NOON)
    blocked.due(1.0)
    _mark(flow, map(_row, range(1, 6)))
    assert blocked.to_reset() == []


@pytest.mark.parametrize("first", [1, 4])
def test_a_mark_with_a_row_of_a_blocked_key_before_its_time_confuses_the_flow(first: int) -> None:
    """A late mark of another leader has taken it, or ids have begun anew."""
    flow, _ = _flow()
    _mark(flow, [_row(4, "a")])
    flow.refuse(_take(flow), "no", 0.0, NOON)
    flow.begin_mark()
    again = _row(first, "a")
    assert flow.end_mark([again, _row(5, "a")], 0.0) is again
    assert flow.take(0) is None


def test_a_row_with_the_id_of_an_awaited_one_and_another_blocked_key_is_not_sent() -> None:
    flow, blocked = _flow()
    _block(flow)
    _mark(flow, [_row(2, "b")])
    flow.refuse(_take(flow), "no", 0.5, NOON)
    assert [row.key for row in blocked.due(1.0)] == ["a"]
    flow.begin_mark()
    again = _row(1, "b")
    assert flow.end_mark([again], 1.0) is again


def test_a_row_with_a_fault_is_taken_alone() -> None:
    flow, _ = _flow()
    _mark(flow, [_row(1), _row(2, fault="headers are no JSON"), _row(3)])
    assert sorted(_ids(flow.take(0)) for _ in range(2)) == [[1, 3], [2]]


def test_a_refused_row_backs_off_and_is_logged_once_in_five_minutes() -> None:
    blocked = BlockedKeys((1.0, 4.0))
    now, seen = 0.0, []
    for _ in range(4):
        refusal = blocked.refuse(_row(1), "no", now, NOON)
        start = now
        while not blocked.due(now):
            now += 1.0
        seen.append((refusal.blocked.attempts, now - start, refusal.worth_logging))
    assert seen == [(1, 1.0, True), (2, 2.0, False), (3, 4.0, False), (4, 4.0, False)]
    assert blocked.refuse(_row(1), "no", 300.0, NOON).worth_logging


def test_a_new_term_forgets_blocked_keys_and_remembers_their_attempts() -> None:
    blocked = BlockedKeys((1.0, 4.0))
    blocked.refuse(_row(1), "no", 0.0, NOON)
    blocked.new_term()
    assert (len(blocked), blocked.rows(), blocked.due(9.0)) == (0, (), [])
    refusal = blocked.refuse(_row(1), "no", 1.0, NOON)
    assert (refusal.blocked.attempts, refusal.worth_logging) == (2, False)


@examples()
@given(
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_any_interleaving_keeps_the_order_of_keys_and_the_bound(
    seed: int, keys: int, shards: int, mark: int, batch: int
) -> None:
    """Marks, sends, purges and refusals at random."""
    draw = random.Random(seed)
    limits = Limits(in_flight=mark + 7, mark=mark, batch=batch, shards=shards)
    flow, blocked = _flow(limits)
    rows = [_row(id, f"k{draw.randrange(keys)}", draw.choice("ab")) for id in range(1, 60)]
    unmarked, stamped = {row.id: row for row in rows}, dict[int, Row]()
    sending: list[Request] = []
    purging: list[list[Row]] = []
    sent: list[Row] = []
    refusals = dict.fromkeys(draw.sample(range(1, 60), 3), 2)
    now = 0.0
    while unmarked or stamped:
        now += 0.5
        match draw.randrange(6):
            case 0:
                for key in blocked.to_reset():
                    mine = [row for row in stamped.values() if row.key == key]
                    unmarked |= {row.id: stamped.pop(row.id) for row in mine}
                    blocked.unblock(key)
                for row in blocked.due(now):
                    if row.id in stamped:
                        unmarked[row.id] = stamped.pop(row.id)
            case 1 if flow.has_room():
                flow.begin_mark()
                full = flow.full_keys()
                found = [id for id in sorted(unmarked) if unmarked[id].key not in full][:mark]
                answer = [unmarked[id] for id in found]
                if purging and draw.random() < 0.5:
                    done = purging.pop()
                    flow.purged(done, now)
                    for row in done:
                        del stamped[row.id]
                        unmarked.pop(row.id, None)
                stamped |= {row.id: row for row in answer if row in unmarked.values()}
                for row in answer:
                    unmarked.pop(row.id, None)
                assert flow.end_mark(answer, now) is None
            case 2 | 3:
                request = flow.take(draw.randrange(shards))
                if request:
                    assert len({row.topic for row in request.rows}) == 1
                    assert len(request.rows) <= batch
                    sending.append(request)
            case 4 if sending:
                request = sending.pop(draw.randrange(len(sending)))
                culprits = [row.id for row in request.rows if refusals.get(row.id)]
                if culprits:
                    if len(request.rows) == 1:
                        refusals[culprits[0]] -= 1
                    flow.refuse(request, "no", now, NOON)
                else:
                    flow.accept(request)
                    sent += request.rows
            case 5:
                if not purging and (acknowledged := flow.to_purge(0.0)):
                    purging.append(acknowledged)
                elif purging:
                    done = purging.pop(0)
                    flow.purged(done, now)
                    for row in done:
                        del stamped[row.id]
        assert flow.in_flight <= limits.in_flight
        busy = [row.key for request in sending for row in request.rows]
        busy += [row.key for rows in purging for row in rows]
        assert len(busy) == len({*busy})
    for key in blocked.to_reset():
        blocked.unblock(key)
    for key in {row.key for row in rows}:
        assert [row.id for row in sent if row.key == key] == [
            row.id for row in rows if row.key == key
        ]
    assert (flow.in_flight, flow.in_flight_keys, len(blocked)) == (0, 0, 0)
