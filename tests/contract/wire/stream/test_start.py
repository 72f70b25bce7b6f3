"""The starts of a stream, by the table of the wire contract."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.contract.wire.store_kinds import EACH_STORE, on_each_driver
from tests.kits.contract.wire import (
    RESET,
    RawStream,
    Target,
    event_of,
    frame,
    fresh_type,
    id_of,
    operation,
    said,
)
from tests.kits.sse.stream import fields_of

FAR_FUTURE = "9" * 13


def starts(
    *different: Callable[..., RawStream], same: Sequence[Callable[..., RawStream]]
) -> pytest.MarkDecorator:
    """Begin a test with different starts on each store, and once with others for the same ones.

    The store does not see how a client has written a start.
    """
    rows = [(kind, start) for kind in EACH_STORE for start in different]
    rows += [(EACH_STORE[0], start) for start in same]
    ids = [f"{kind}-{start.__name__.strip('_')}" for kind, start in rows]
    return pytest.mark.parametrize(("store_kind", "start"), rows, ids=ids, indirect=["store_kind"])


def written(target: Target, type_: str, *operations: tuple[str, str]) -> list[bytes]:
    """Store operations. Return their blocks as a live consumer received them."""
    with target.follow(types=type_) as stream:
        target.store(*(operation(event, id_, type_) for event, id_ in operations))
        return stream.take(len(operations))


def ms_of(event_id: str) -> int:
    """Return the time in an event id."""
    return int(event_id[:8], 16) * 1000 + int(event_id[8:12], 16)


def other(event_id: str, *, seconds: int = 0, millis: int = 0, offset: int = 0) -> str:
    """Return the id with its parts increased."""
    parts = event_id[:8], event_id[8:12], event_id[12:]
    first, second, third = (int(part, 16) for part in parts)
    return f"{first + seconds:08x}{second + millis:04x}{third + offset:012x}"


def replication(stream: RawStream) -> list[tuple[str, str]]:
    return [said(block) for block in stream.until("live")]


def data_line(block: bytes) -> str:
    return fields_of(block)["data"]


@pytest.mark.parametrize("query", [{}, {"last_event_id": ""}, {"since": ""}], ids=str)
@pytest.mark.parametrize("header", [None, ""])
def test_without_a_start_the_stream_begins_with_the_next_operation(
    target: Target, query: dict[str, str], header: str | None
) -> None:
    written(target, "thing", ("insert", "before"))
    with target.follow(header, **query) as stream:
        target.store(operation("insert", "after", "thing"))
        assert said(stream.block()) == ("insert", "after")


@pytest.mark.parametrize("by", ["header", "query"])
def test_an_id_in_the_log_is_followed_by_every_later_operation_and_the_live_ones(
    target: Target, by: str
) -> None:
    type_ = fresh_type()
    events = [
        ("insert", "a"),
        ("update", "a"),
        ("delete", "a"),
        ("insert", "a"),
        ("update", "b"),
        ("delete", "c"),
    ]
    blocks = written(target, type_, *events)
    for index, block in enumerate(blocks[:]):
        id_ = id_of(block)
        stream = target.follow(id_) if by == "header" else target.follow(last_event_id=id_)
        with stream:
            assert stream.take(len(blocks) - index - 1) == blocks[index + 1 :]
            (live,) = written(target, type_, ("insert", f"live{index}"))
            assert stream.block() == live
        blocks.append(live)


def test_the_ids_of_the_log_ascend(target: Target) -> None:
    ids = [id_of(block) for block in written(target, "thing", *[("insert", "a")] * 50)]
    assert all(len(id_) == 24 for id_ in ids)
    assert ids == sorted(set(ids))


def _zero_as_header(target: Target, type_: str) -> RawStream:
    return target.follow("0", types=type_)


def _zeros_as_header(target: Target, type_: str) -> RawStream:
    return target.follow("0" * 13, types=type_)


def _zero_as_query(target: Target, type_: str) -> RawStream:
    return target.follow(last_event_id="0", types=type_)


def _zero_since(target: Target, type_: str) -> RawStream:
    return target.follow(since="0", types=type_)


def _beyond_the_head(target: Target, type_: str) -> RawStream:
    (block,) = written(target, fresh_type(), ("insert", "a"))
    return target.follow(other(id_of(block), offset=1), types=type_)


def _far_beyond_the_head(target: Target, type_: str) -> RawStream:
    (block,) = written(target, fresh_type(), ("insert", "a"))
    return target.follow(id_of(block)[:12] + "f" * 12, types=type_)


def _a_second_earlier(target: Target, type_: str) -> RawStream:
    (block,) = written(target, fresh_type(), ("insert", "a"))
    return target.follow(other(id_of(block), seconds=-1), types=type_)


def _a_second_later(target: Target, type_: str) -> RawStream:
    (block,) = written(target, fresh_type(), ("insert", "a"))
    return target.follow(other(id_of(block), seconds=1), types=type_)


def _a_milli_second_off(target: Target, type_: str) -> RawStream:
    (block,) = written(target, fresh_type(), ("insert", "a"))
    millis = int(id_of(block)[8:12], 16)
    return target.follow(other(id_of(block), millis=-1 if millis else 1), types=type_)


def _an_object_id_of_another_program(target: Target, type_: str) -> RawStream:
    return target.follow("545b55c7f095528dd0f3863c", types=type_)


def _the_greatest_id(target: Target, type_: str) -> RawStream:
    return target.follow("f" * 24, types=type_)


def _the_smallest_id(target: Target, type_: str) -> RawStream:
    return target.follow("0" * 24, types=type_)


def _a_time_before_the_store(target: Target, type_: str) -> RawStream:
    return target.follow("2", types=type_)


def _since_a_time_before_the_store(target: Target, type_: str) -> RawStream:
    return target.follow(since="2014-11-06T11:04:39Z", types=type_)


def _since_a_time_before_1970(target: Target, type_: str) -> RawStream:
    return target.follow(since="1914-11-06T11:04:39Z", types=type_)


def _a_time_of_a_clock_far_ahead(target: Target, type_: str) -> RawStream:
    return target.follow(FAR_FUTURE, types=type_)


@starts(
    _zero_as_header,
    _beyond_the_head,
    _far_beyond_the_head,
    _a_second_earlier,
    _a_second_later,
    _a_milli_second_off,
    _an_object_id_of_another_program,
    _the_greatest_id,
    _the_smallest_id,
    _a_time_before_the_store,
    _a_time_of_a_clock_far_ahead,
    same=[
        _zeros_as_header,
        _zero_as_query,
        _zero_since,
        _since_a_time_before_the_store,
        _since_a_time_before_1970,
    ],
)
def test_a_full_replication_is_reset_and_every_live_object_and_live(
    target: Target, start: Callable[[Target, str], RawStream]
) -> None:
    type_ = fresh_type()
    blocks = written(
        target,
        type_,
        ("insert", "a"),
        ("insert", "b"),
        ("insert", "c"),
        ("update", "a"),
        ("delete", "b"),
    )
    blocks += written(target, type_, ("delete", "never seen"), ("insert", "d"), ("insert", "b"))
    last = {said(block)[1]: block for block in blocks}
    with start(target, type_) as stream:
        reset, *states, live = stream.until("live")
        assert reset == RESET
        assert states == [
            frame(str(ms_of(id_of(last[id_]))), "insert", data_line(last[id_]))
            for id_ in ("c", "a", "d", "b")
        ]
        assert live == frame(id_of(live), "live", "").replace(b"data: \n", b"data:\n")
        (after,) = written(target, type_, ("update", "d"))
        assert stream.block() == after


def test_the_id_of_live_resumes_exactly_at_the_next_operation(target: Target) -> None:
    type_ = fresh_type()
    written(target, type_, ("insert", "a"))
    with target.follow("0", types=type_) as stream:
        live = id_of(stream.until("live")[-1])
    missed = written(target, type_, ("insert", "b"), ("delete", "a"))
    with target.follow(live, types=type_) as stream:
        assert stream.take(2) == missed


def _as_header(target: Target, ms: int, type_: str) -> RawStream:
    return target.follow(str(ms), types=type_)


def _as_query(target: Target, ms: int, type_: str) -> RawStream:
    return target.follow(last_event_id=str(ms), types=type_)


def _since_ms(target: Target, ms: int, type_: str) -> RawStream:
    return target.follow(since=str(ms), types=type_)


def _since_utc(target: Target, ms: int, type_: str) -> RawStream:
    return target.follow(
        since=_time(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"), types=type_
    )


def _since_with_an_escaped_plus(target: Target, ms: int, type_: str) -> RawStream:
    return target.follow(since=_abroad(ms), types=type_)


def _since_with_a_plus_as_typed(target: Target, ms: int, type_: str) -> RawStream:
    return RawStream(
        target, f"/ops?since={_abroad(ms)}&types={type_}", {"Accept": "text/event-stream"}
    )


def _time(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _abroad(ms: int) -> str:
    text = (
        _time(ms)
        .astimezone(timezone(timedelta(hours=5, minutes=30)))
        .isoformat(timespec="milliseconds")
    )
    assert text.endswith("+05:30")
    return text


@starts(
    _as_header,
    same=[
        _as_query,
        _since_ms,
        _since_utc,
        _since_with_an_escaped_plus,
        _since_with_a_plus_as_typed,
    ],
)
def test_a_time_is_followed_by_all_later_changes_with_deletions(
    target: Target, start: Callable[[Target, int, str], RawStream]
) -> None:
    type_ = fresh_type()
    old = written(target, type_, ("insert", "old"), ("insert", "gone"), ("insert", "changed"))
    while True:  # until a millisecond has passed
        blocks = written(
            target, type_, ("update", "changed"), ("delete", "gone"), ("insert", "new")
        )
        ms = ms_of(id_of(blocks[0]))
        if ms > ms_of(id_of(old[-1])):
            break
    with start(target, ms, type_) as stream:
        *states, live = stream.until("live")
        kinds = {"update": "insert", "delete": "delete", "insert": "insert"}
        assert states == [
            frame(str(ms_of(id_of(block))), kinds[event_of(block)], data_line(block))
            for block in blocks
        ]
        (after,) = written(target, type_, ("update", "old"))
        assert stream.block() == after
    with target.follow(id_of(live), types=type_) as stream:
        assert stream.block() == after


def test_an_interrupted_replication_goes_on_from_any_of_its_ids(target: Target) -> None:
    type_ = fresh_type()
    for number in range(5):
        written(target, type_, ("insert", str(number)))
    with target.follow("0", types=type_) as stream:
        blocks = stream.until("live")
    for index, block in enumerate(blocks[:-1]):
        with target.follow(id_of(block), types=type_) as stream:
            again = stream.until("live")
        assert event_of(again[0]) != "reset"
        assert set(blocks[index + 1 : -1]) <= set(again)
        assert all(int(id_of(state)) >= int(id_of(block)) for state in again[:-1])


def test_the_id_of_reset_is_followed_by_all_states_with_deletions(target: Target) -> None:
    type_ = fresh_type()
    written(target, type_, ("insert", "a"), ("insert", "b"))
    written(target, type_, ("delete", "a"))
    with target.follow("1", types=type_) as stream:
        assert replication(stream) == [("insert", "b"), ("delete", "a"), ("live", "")]


def test_the_header_wins_over_the_query(target: Target) -> None:
    type_ = fresh_type()
    first, second, third = written(target, type_, ("insert", "a"), ("insert", "b"), ("insert", "c"))
    with target.follow(id_of(second), last_event_id=id_of(first), types=type_) as stream:
        assert stream.block() == third
    with target.follow(id_of(first), since="0", types=type_) as stream:
        assert stream.take(2) == [second, third]
    with target.follow("", last_event_id=id_of(second), types=type_) as stream:
        assert stream.block() == third


@on_each_driver  # states are the same beside both kinds of log
def test_many_states_of_one_commit_are_all_replicated(target: Target) -> None:
    type_ = fresh_type()
    target.store(*(operation("insert", str(number), type_) for number in range(2000)))
    with target.follow("0", types=type_) as stream:
        assert replication(stream) == [
            ("reset", ""),
            *(("insert", str(n)) for n in range(2000)),
            ("live", ""),
        ]
