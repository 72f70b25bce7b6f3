"""The content of a stream: filters, heartbeats, checkpoints. test_ingest compares operations."""

import time

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.kits.agents.agent import DEADLINE
from tests.kits.contract.wire import (
    RESET,
    SSE,
    RawStream,
    Target,
    event_of,
    fresh_type,
    id_of,
    operation,
    path_with,
    said,
)

A, B, C, P = fresh_type(), fresh_type(), fresh_type(), fresh_type()
OPERATIONS = [
    operation("insert", "a", A),
    operation("insert", "ax", A, P + "x"),
    operation("insert", "ay", A, P + "y"),
    operation("insert", "bxz", B, P + "x", P + "z"),
    operation("insert", "b", B),
    operation("insert", "cx", C, P + "x"),
    operation("insert", "c(x,y)", C, f"{P}x,{P}y"),
    operation("insert", "bX", B, P + "X"),
    operation("insert", "end", A, P + "x", P + "y", P + "z", f"{P}x,{P}y"),
]
FILTERS: list[tuple[str, list[tuple[str, str]], list[str]]] = [
    ("one type", [("types", A)], ["a", "ax", "ay", "end"]),
    ("two types", [("types", f"{A},{B}")], ["a", "ax", "ay", "bxz", "b", "bX", "end"]),
    (
        "two types, repeated",
        [("types", A), ("types", B)],
        ["a", "ax", "ay", "bxz", "b", "bX", "end"],
    ),
    ("a type in upper case", [("types", A.upper())], ["a", "ax", "ay", "end"]),
    ("empty values", [("types", f"{A},,"), ("parents", "")], ["a", "ax", "ay", "end"]),
    ("one parent", [("parents", P + "x")], ["ax", "bxz", "cx", "end"]),
    ("two parents", [("parents", f"{P}x,{P}y")], ["ax", "ay", "bxz", "cx", "end"]),
    ("two parents, repeated", [("parents", P + "y"), ("parents", P + "z")], ["ay", "bxz", "end"]),
    ("a parent with a comma", [("parents", f"{P}x,{P}y"), ("parents", "")], ["c(x,y)", "end"]),
    (
        "parents with and without comma",
        [("parents", f"{P}x,{P}y"), ("parents", P + "z")],
        ["bxz", "c(x,y)", "end"],
    ),
    ("type and parent", [("types", A), ("parents", P + "x")], ["ax", "end"]),
    ("ids", [("ids", "ax,b,end"), ("types", f"{A},{B}")], ["ax", "b", "end"]),
    (
        "ids with and without comma",
        [("ids", "c(x,y)"), ("ids", "end"), ("types", f"{A},{C}")],
        ["c(x,y)", "end"],
    ),
    ("events", [("events", "Insert,update"), ("types", A)], ["a", "ax", "ay", "end"]),
    ("types and parents", [("types", f"{A},{C}"), ("parents", f"{P}x,{P}z")], ["ax", "cx", "end"]),
]


@pytest.mark.parametrize(
    ("query", "passing"), [row[1:] for row in FILTERS], ids=[row[0] for row in FILTERS]
)
def test_a_filter_passes_a_listed_type_and_any_listed_parent(
    target: Target, query: list[tuple[str, str]], passing: list[str]
) -> None:
    expected = [("insert", id_) for id_ in passing]
    with target.follow() as everything:
        target.store(operation("insert", "before", "thing"))
        before = id_of(everything.block())
    with RawStream(target, path_with(query), SSE) as live:
        target.store(*OPERATIONS)
        assert [said(block) for block in live.take(len(passing))] == expected
    with RawStream(target, path_with([*query, ("last_event_id", before)]), SSE) as resumed:
        assert [said(block) for block in resumed.take(len(passing))] == expected
    with RawStream(target, path_with([*query, ("last_event_id", "0")]), SSE) as replicated:
        blocks = replicated.until("live")
        assert blocks[0] == RESET
        assert [said(block) for block in blocks[1:-1]] == expected
        target.store(operation("delete", "never seen", C), OPERATIONS[-1])
        assert said(replicated.block()) == ("insert", "end")


def test_a_stream_of_deletions_sends_them_and_the_deleted_states(target: Target) -> None:
    type_ = fresh_type()
    with target.follow() as everything:
        target.store(operation("insert", "a", type_))
        first = id_of(everything.block())
    with target.follow(types=type_, events="delete") as live:
        target.store(
            operation("update", "a", type_),
            operation("delete", "gone", type_),
            operation("delete", "a", type_),
            operation("insert", "gone", type_),
        )
        assert [said(block) for block in live.take(2)] == [("delete", "gone"), ("delete", "a")]
    with target.follow(first, types=type_, events="DELETE") as resumed:
        assert [said(block) for block in resumed.take(2)] == [("delete", "gone"), ("delete", "a")]
    with target.follow("0", types=type_, events="delete") as copy:
        assert [event_of(block) for block in copy.until("live")] == ["reset", "live"]
    with target.follow("1", types=type_, events="delete") as changes:
        assert [said(block) for block in changes.until("live")[:-1]] == [("delete", "a")]
    with target.follow("1", types=type_, events="update") as changes:
        assert [said(block) for block in changes.until("live")[:-1]] == [("insert", "gone")]


def test_a_filter_that_nothing_passes_lets_reset_and_live_through(target: Target) -> None:
    with target.follow("0", types=fresh_type(), parents=fresh_type()) as stream:
        assert [said(block) for block in stream.take(2)] == [("reset", ""), ("live", "")]


@on_one_store
def test_a_silent_stream_sends_heartbeats_and_nothing_else(target: Target) -> None:
    with target.follow() as stream:
        stream.next_heartbeat()
        stream.next_heartbeat()
        assert stream.received == b":\n:\n"


@on_one_store
@pytest.mark.parametrize("query", [{}, {"checkpoint": "0"}, {"checkpoint": ""}], ids=str)
def test_checkpoints_are_sent_only_on_request(target: Target, query: dict[str, str]) -> None:
    with target.follow("0", types=fresh_type(), **query) as stream:
        assert [event_of(block) for block in stream.take(2)] == ["reset", "live"]
        assert stream.next_heartbeat() == []
        assert stream.next_heartbeat() == []


def test_a_checkpoint_is_sent_at_the_start_and_with_each_heartbeat(target: Target) -> None:
    type_ = fresh_type()
    with target.follow(types=type_) as stream:
        target.store(operation("insert", "a", type_))
        here = id_of(stream.block())
    checkpoint = f"id: {here}\n\n".encode()
    with target.follow(checkpoint="1") as stream:
        assert stream.block() == checkpoint
        assert stream.received == checkpoint
        assert stream.take(2) == [checkpoint, checkpoint]
        assert stream.received == checkpoint + 2 * (b":\n" + checkpoint)
    with target.follow(here, checkpoint="1") as stream:
        assert stream.block() == checkpoint


def test_a_checkpoint_covers_only_operations_written_to_this_connection(target: Target) -> None:
    type_ = fresh_type()
    with target.follow(types=type_) as stream:
        target.store(*(operation("insert", str(n), type_) for n in range(3)))
        ids = [id_of(block) for block in stream.take(3)]
    with target.follow(ids[0], checkpoint="1", types=type_) as stream:
        assert [id_of(block) for block in stream.take(4)] == [ids[0], *ids[1:], ids[2]]
        assert [event_of(block) for block in [stream.block()]] == [""]


def test_a_filtered_stream_says_at_once_that_it_has_caught_up(target: Target) -> None:
    quiet, busy = fresh_type(), fresh_type()
    with target.follow(types=busy) as stream:
        target.store(*(operation("insert", str(n), busy) for n in range(3)))
        first, _, newest = (id_of(block) for block in stream.take(3))
    with target.follow(first, checkpoint="1", types=quiet) as stream:
        assert [id_of(block) for block in stream.take(2)] == [first, newest]
        assert stream.received == f"id: {first}\n\nid: {newest}\n\n".encode()


def test_the_checkpoints_of_a_narrow_filter_move_on_while_others_write(target: Target) -> None:
    quiet, busy = fresh_type(), fresh_type()
    with target.follow(types=busy) as others, target.follow(checkpoint="1", types=quiet) as stream:
        at = id_of(stream.block())
        for _ in range(3):
            target.store(operation("insert", "a", busy), operation("insert", "b", busy))
            reached = id_of(others.take(2)[-1])
            deadline = time.monotonic() + DEADLINE
            while at != reached:
                assert time.monotonic() < deadline
                block = stream.block()
                assert event_of(block) == ""
                assert at <= id_of(block) <= reached
                at = id_of(block)
        target.store(operation("insert", "mine", quiet))
        block = stream.block()
        while event_of(block) == "":
            block = stream.block()
        assert said(block) == ("insert", "mine")
    with target.follow(at, types=quiet) as resumed:
        assert resumed.block() == block


@on_one_store
def test_no_checkpoint_comes_between_the_start_of_a_replication_and_its_live(
    target: Target,
) -> None:
    """The consumer reads so slowly that heartbeats fall due during its replication."""
    type_ = fresh_type()
    for batch in range(2):
        target.store(*(operation("insert", f"{batch}-{n}", type_, "p" * 60_000) for n in range(50)))
    query = [("types", type_), ("checkpoint", "1"), ("last_event_id", "0")]
    with (
        target.follow() as clock,
        RawStream(target, path_with(query), SSE, receive_buffer=8192) as stream,
    ):
        names = [event_of(block) for block in stream.take(2)]
        for _ in range(4):
            clock.next_heartbeat()
        names += [event_of(block) for block in stream.until("live")]
        assert names == ["reset", *["insert"] * 100, "live"]
        assert event_of(stream.block()) == ""
