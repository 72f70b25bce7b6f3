"""The buffer of a producer and what an agent's answers do to it, without a network."""

import json
from contextlib import nullcontext

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.backoff import Backoff, retry_after
from oplogc.errors import BufferFullError, FlushError, OperationError
from oplogc.operation import encode
from oplogc.outbox import Outbox, Overflow
from oplogc.verdict import Delivered, Invalid, Later, TooLarge, Verdict, judge
from oplogd import operation as agent_side
from oplogd.errors import OperationError as AgentError


def outbox(*operations: bytes, max_operations: int = 100, max_bytes: int = 1000, batch_size: int = 10) -> Outbox:
    box = Outbox(max_operations, max_bytes, batch_size, Backoff(1, 30))
    for raw in operations:
        box.add(raw)
    return box


def test_the_same_batch_is_sent_until_it_is_delivered() -> None:
    box = outbox(b"a", b"b")
    first = box.batch()
    box.add(b"c")
    assert box.apply(Later("away")) >= 1
    assert box.batch() == first == [b"a", b"b"]
    assert not box.is_flushed(1)
    with pytest.raises(FlushError, match="3 operations are not delivered: away"):
        box.check_flushed(1)
    assert box.apply(Delivered()) == 0
    assert box.is_flushed(2)
    box.check_flushed(2)
    assert not box.is_flushed(3)
    assert box.batch() == [b"c"]
    box.apply(Delivered())
    assert box.batch() == []
    counters = box.counters
    assert (counters.sent, counters.delivered, counters.retried, counters.buffered) == (3, 3, 1, 0)


def test_a_flush_is_over_when_the_agent_refuses_for_a_cause_that_stays() -> None:
    box = outbox(b"a")
    box.batch()
    box.apply(Later("password (HTTP 401)", 0.0, 401))
    assert box.is_flushed(1)
    with pytest.raises(FlushError, match="password"):
        box.check_flushed(1)


@pytest.mark.parametrize(
    ("overflow", "raised"), [("block", True), ("raise", True), ("drop_new", False), ("drop_old", False)]
)
def test_what_there_is_no_room_for_is_counted_and_raises_unless_it_may_be_dropped(
    overflow: Overflow, raised: bool
) -> None:
    box = outbox(b"a", max_operations=1)
    with pytest.raises(BufferFullError, match="1 operations") if raised else nullcontext():
        box.refuse(overflow)
    assert (box.counters.sent, box.counters.dropped, box.counters.buffered) == (2, 1, 1)


def test_invalid_operations_leave_and_the_others_go_again(caplog: pytest.LogCaptureFixture) -> None:
    box = outbox(b"a", b"bad", b"c")
    box.batch()
    box.apply(Invalid({1: "type: must not be empty"}))
    assert box.batch() == [b"a", b"c"]
    assert "type: must not be empty" in caplog.text
    assert (box.counters.rejected, box.counters.buffered) == (1, 2)


def test_a_batch_that_is_too_large_is_halved_in_order() -> None:
    box = outbox(b"a", b"b", b"c", b"d", batch_size=3)
    sent = []
    while batch := box.batch():
        if len(batch) > 1:
            box.apply(TooLarge("too large"))
        elif batch == [b"b"]:
            box.apply(TooLarge("a single one"))
        else:
            sent += batch
            box.apply(Delivered())
    assert sent == [b"a", b"c", b"d"]
    assert (box.counters.delivered, box.counters.rejected, box.counters.buffered) == (3, 1, 0)


def test_dropping_the_oldest_spares_what_is_in_flight() -> None:
    box = outbox(b"a", b"b", max_operations=2, batch_size=1)
    box.batch()
    assert not box.has_room(b"c")
    assert box.drop_old_for(b"c")
    box.add(b"c")
    box.apply(Delivered())
    assert box.batch() == [b"c"]
    assert not box.drop_old_for(b"x" * 1000)
    assert (box.counters.delivered, box.counters.dropped, box.counters.buffered) == (1, 1, 1)


def test_the_buffer_is_bounded_in_bytes_but_takes_a_single_large_operation() -> None:
    assert outbox(max_bytes=3).has_room(b"larger than all")
    assert not outbox(b"ab", max_bytes=3).has_room(b"cd")
    assert outbox(b"ab", max_bytes=4).has_room(b"cd")


def test_a_batch_is_bounded_in_bytes() -> None:
    box = outbox(*[b"x" * 60_000] * 30, max_bytes=10_000_000, batch_size=1000)
    assert len(box.batch()) == 17


_ERRORS = json.dumps({"detail": "1 of 2", "errors": [{"line": 2, "field": "id", "reason": "must not be empty"}]})


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (httpx.Response(200, json={"ingested": 2}), Delivered()),
        (httpx.Response(400, text=_ERRORS), Invalid({1: "id: must not be empty"})),
        (httpx.Response(413, json={"detail": "too large"}), TooLarge("too large (HTTP 413)")),
        (
            httpx.Response(503, json={"detail": "full"}, headers={"Retry-After": "7"}),
            Later("full (HTTP 503)", 7.0),
        ),
        (httpx.Response(502, text="<html>"), Later("Bad Gateway (HTTP 502)")),
        (httpx.Response(401, json={"detail": "password"}), Later("password (HTTP 401)", 0.0, 401)),
        (httpx.Response(400, json={"errors": [{"line": 9}]}), Later("Bad Request (HTTP 400)", 0.0, 400)),
        (httpx.Response(200, text="<html>"), Later("http://agent/ops is no agent", 0.0, 200)),
        (httpx.Response(200, json={"ingested": 1}), Later("http://agent/ops is no agent", 0.0, 200)),
    ],
)
def test_answers_are_judged(response: httpx.Response, verdict: Verdict) -> None:
    response.request = httpx.Request("POST", "http://agent/ops")
    assert judge(response, 2) == verdict


@given(st.lists(st.floats(0, 100), max_size=20))
def test_a_backoff_stays_within_its_bounds_unless_asked_for_more(asked: list[float]) -> None:
    backoff = Backoff(1, 30)
    for number, at_least in enumerate(asked):
        delay = backoff.next(at_least)
        assert max(1, at_least) <= delay <= max(30, at_least * 1.3)
        if at_least == 0:
            assert delay >= min(15, 2**number)


def test_retry_after_is_read_in_seconds() -> None:
    assert [retry_after(text) for text in ("5", " 5 ", None, "", "Fri, 31 Dec 1999 23:59:59 GMT", "-1")] == [
        5,
        5,
        0,
        0,
        0,
        0,
    ]


_names = st.text(st.characters(), max_size=300)


@given(st.sampled_from(["insert", "Update", "DELETE", "upsert"]), _names, _names, st.lists(_names, max_size=2))
def test_an_operation_is_refused_here_exactly_when_the_agent_would(
    event: str, type_: str, id_: str, parents: list[str]
) -> None:
    try:
        raw = encode(event, type_, id_, parents)
    except OperationError:
        lines = {"event": event, "type": type_, "id": id_, "parents": parents}
        with pytest.raises(AgentError):
            agent_side.decode(json.dumps(lines).encode(), "2014-11-06T11:04:39.041Z")
        return
    taken = agent_side.decode(raw, "2014-11-06T11:04:39.041Z")
    assert agent_side.decode_data(taken.data.decode()).parents == parents
    assert taken.key == f"{type_.lower()}/{id_}"
