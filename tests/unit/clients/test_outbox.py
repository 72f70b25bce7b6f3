"""The buffer of a producer and its reaction to answers, without a network."""

import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.http.answers import Answer
from oplogc.http.backoff import Backoff, retry_after
from oplogc.producers.outbox import OperationOutbox, Overflow
from oplogc.producers.verdict import Delivered, Invalid, Later, TooLarge, Verdict, judge
from oplogc.wire.errors import BufferFullError, FlushError, OperationError
from oplogc.wire.operation import encode
from oplogd.errors import OperationError as AgentError
from oplogd.model import operation as agent_side


def outbox(
    *operations: bytes, max_operations: int = 100, max_bytes: int = 1000, batch_size: int = 10
) -> OperationOutbox:
    box = OperationOutbox(max_operations, max_bytes, batch_size, Backoff(1, 30))
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
    ("overflow", "raised"),
    [("block", True), ("raise", True), ("drop_new", False), ("drop_old", False)],
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


def _deliver(box: OperationOutbox, fits: int, batches: int) -> list[int]:
    """Return the sizes of the batches if an agent refuses more than ``fits`` operations."""
    sizes = []
    for _ in range(batches):
        sizes.append(len(box.batch()))
        box.apply(Delivered() if sizes[-1] <= fits else TooLarge("too large"))
    return sizes


def test_batches_grow_back_after_one_was_too_large() -> None:
    box = outbox(*[b"x"] * 100, batch_size=8)
    assert _deliver(box, 7, 3) == [8, 4, 4]
    assert _deliver(box, 8, 3) == [8, 8, 8]


def test_batches_grow_back_at_once_when_a_single_operation_was_too_large() -> None:
    box = outbox(b"large", *[b"x"] * 20, batch_size=8)
    assert _deliver(box, 0, 4) == [8, 4, 2, 1]
    assert _deliver(box, 8, 2) == [8, 8]
    assert (box.counters.rejected, box.counters.delivered) == (1, 16)


def test_an_agent_that_takes_only_small_batches_is_seldom_sent_large_ones() -> None:
    box = outbox(*[b"x"] * 2000, max_operations=2000, max_bytes=10_000, batch_size=8)
    sizes = _deliver(box, 4, 300)
    assert sizes.count(8) <= 10
    assert 8 in sizes[100:]


def test_one_warning_tells_of_all_operations_that_an_answer_rejects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    box = outbox(b"a", b"bad", b"c", b"worse")
    box.batch()
    box.apply(Invalid({3: "id: too long", 1: "type: must not be empty"}))
    assert [record.getMessage() for record in caplog.records] == [
        "the agent rejects 2 of 4 operations; the first is b'bad': type: must not be empty"
    ]


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


_ERRORS = json.dumps(
    {"detail": "1 of 2", "errors": [{"line": 2, "field": "id", "reason": "must not be empty"}]}
)


def _answer(status: int, body: object = "", **more: Any) -> Answer:
    raw = (
        body
        if isinstance(body, bytes)
        else (body if isinstance(body, str) else json.dumps(body)).encode()
    )
    return Answer(status, raw, "http://agent/ops", HTTPStatus(status).phrase, **more)


def _no_agent(status: int) -> Later:
    reason = (
        f"http://agent/ops is no agent: its answer does not confirm the operations (HTTP {status})"
    )
    return Later(reason, 0.0, status)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (_answer(200, {"ingested": 2}), Delivered()),
        (_answer(400, _ERRORS), Invalid({1: "id: must not be empty"})),
        (_answer(413, {"detail": "too large"}), TooLarge("too large (HTTP 413)")),
        (_answer(503, {"detail": "full"}, retry_after=7.0), Later("full (HTTP 503)", 7.0)),
        (_answer(502, "<html>"), Later("Bad Gateway (HTTP 502)")),
        (_answer(401, {"detail": "password"}), Later("password (HTTP 401)", 0.0, 401)),
        (_answer(401, {"detail": "a\x1b[2J\nb"}), Later("a\\x1b[2J\\nb (HTTP 401)", 0.0, 401)),
        (_answer(401, {"detail": ["password"]}), Later("Unauthorized (HTTP 401)", 0.0, 401)),
        (
            _answer(307, location="http://other/ops"),
            Later(
                "http://agent/ops redirects to http://other/ops: "
                "give that address instead (HTTP 307)",
                0.0,
                307,
            ),
        ),
    ],
)
def test_answers_are_judged(answer: Answer, verdict: Verdict) -> None:
    assert judge(answer, 2) == verdict


@pytest.mark.parametrize("status", [200, 201, 202, 204])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>",
        "[2]",
        "2",
        '{"ingested": 1}',
        '{"ingested": "2"}',
        '{"ingested": NaN}',
        '{"ingested": Infinity}',
        '{"ingested": 2, "more": NaN}',
        '{"ingested": null}',
        "[" * 100_000,
        b"\xff",
        '{"ingested": 1' + "0" * 5000 + "}",
    ],
)
def test_only_an_answer_that_confirms_every_operation_delivers(
    status: int, body: str | bytes
) -> None:
    assert judge(_answer(status, body), 2) == _no_agent(status)
    assert judge(_answer(200, {"ingested": True}), 1) == _no_agent(200)


@pytest.mark.parametrize(
    "errors",
    [
        "absent",
        [],
        {},
        [{"line": 0}],
        [{"line": 3}],
        [{"line": -1}],
        [{"line": "1"}],
        [{"line": True}],
        [{"line": 1.0}],
        [{"line": float("inf")}],
        [{"line": 10**400}],
        [{}],
        [1],
        [{"line": 1}, {"line": 9}],
        "[" * 100_000,
    ],
)
def test_lines_that_cannot_be_are_not_trusted(errors: object) -> None:
    body = {"detail": "no"} | ({} if errors == "absent" else {"errors": errors})
    raw = errors if isinstance(errors, str) and errors != "absent" else json.dumps(body)
    verdict = judge(_answer(400, raw), 2)
    assert isinstance(verdict, Later)
    assert verdict.status == 400


@given(st.lists(st.floats(0, 100), max_size=20))
def test_a_backoff_stays_within_its_bounds_unless_asked_for_more(asked: list[float]) -> None:
    backoff = Backoff(1, 30)
    for number, at_least in enumerate(asked):
        delay = backoff.next(at_least)
        assert max(1, at_least) <= delay <= max(30, at_least * 1.3)
        if at_least == 0:
            assert delay >= min(15, 2**number)


def test_retry_after_is_read_in_seconds_and_as_a_date_up_to_an_hour() -> None:
    assert [retry_after(text) for text in ("5", " 5 ", "0", "3601", "9" * 400)] == [
        5,
        5,
        0,
        3600,
        3600,
    ]
    for unreadable in (
        None,
        "",
        "-1",
        "1.5",
        "soon",
        "1e9",
        "٣",
        "Fri, 99 Foo 2030 00:00:00 GMT",
        "Fri,",
    ):
        assert retry_after(unreadable) == 0, unreadable
    now = datetime.now(UTC)
    soon = now + timedelta(seconds=3_000)
    for text in (format_datetime(soon, usegmt=True), soon.strftime("%A, %d-%b-%y %H:%M:%S GMT")):
        assert 2_900 < retry_after(text) <= 3_000
    assert retry_after("Fri, 31 Dec 1999 23:59:59 GMT") == 0
    assert retry_after("Fri, 31 Dec 9999 23:59:59 GMT") == 3600


_names = st.text(st.characters(), max_size=300)


_times = st.none() | st.sampled_from(
    [
        "yesterday",
        "2014-11-06T11:04:39",
        "2014-11-06T11:04:39Z",
        "2014-11-06t11:04:39.1234567+01:00",
        "2014-11-06 11:04:39z",
        "2014-02-30T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "2014-11-06T24:00:00Z",
        "2014-11-06T11:04:60Z",
        "",
        "20141106T110439Z",
        "2014-11-06T11:04:39+05:99",
        "9999-12-31T23:59:59-01:00",
        "2014-11-06T11:04:39.Z",
        "\u0662014-11-06T11:04:39Z",
    ]
)


@given(
    st.sampled_from(["insert", "Update", "DELETE", "upsert"]),
    _names,
    _names,
    st.lists(_names, max_size=2),
    _times,
)
def test_an_operation_is_refused_here_exactly_when_the_agent_would(
    event: str, type_: str, id_: str, parents: list[str], timestamp: str | None
) -> None:
    lines: dict[str, object] = {
        "event": event,
        "type": type_,
        "id": id_,
        "parents": parents,
        "timestamp": timestamp,
    }
    try:
        raw = encode(event, type_, id_, parents, timestamp)
    except OperationError:
        with pytest.raises(AgentError):
            agent_side.decode(json.dumps(lines).encode(), "2014-11-06T11:04:39.041Z")
        return
    taken = agent_side.decode(raw, "2014-11-06T11:04:39.041Z")
    assert agent_side.decode_data(taken.data.decode()).parents == parents
    assert taken.key == f"{type_.lower()}/{id_}"


@pytest.mark.parametrize("timestamp", ["yesterday", "2014-11-06T11:04:39", "2014-02-30T00:00:00Z"])
def test_a_time_that_is_none_is_refused_here(timestamp: str) -> None:
    with pytest.raises(OperationError, match="timestamp"):
        encode("insert", "video", "a", (), timestamp)


@pytest.mark.parametrize("wrong", [[], {}, 1, 1.5, b"video", ["a"], {"a"}])
@pytest.mark.parametrize("field", ["event", "type", "id", "parents", "timestamp"])
def test_a_value_of_the_wrong_kind_is_refused_with_its_name(field: str, wrong: Any) -> None:
    if field == "parents" and isinstance(wrong, list):
        wrong = [1]
    with pytest.raises(OperationError) as raised:
        encode(**({"event": "insert", "type": "video", "id": "a"} | {field: wrong}))
    assert raised.value.field == field
