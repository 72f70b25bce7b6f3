"""Acknowledgements in any order, and the position that they result in."""

import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.follow.acks import Acks
from oplogc.wire.errors import ProtocolError
from oplogc.wire.events import Checkpoint, Live, Operation, Reset, is_known, position_of, read
from oplogc.wire.sse import Block

_DATA = '{"timestamp":"2014-11-06T11:04:39.041Z","parents":["x"],"type":"video","id":"a"}'


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["1", "5", "6", "7"])), max_size=30),
    st.data(),
)
def test_the_position_is_the_last_id_before_the_oldest_unacknowledged_event(
    entries: list[tuple[bool, str]], data: st.DataObject
) -> None:
    acks = Acks("0")
    acknowledged: set[int] = set()
    for number, (passed, id_) in enumerate(entries):
        if passed:
            acks.passed(id_)
            acknowledged.add(number)
        else:
            acks.handed_out(number, id_)
        for again in data.draw(st.lists(st.integers(0, number), max_size=3)):
            if not entries[again][0]:
                acks.ack(again)
                acknowledged.add(again)
        oldest = next((n for n in range(number + 1) if n not in acknowledged), number + 1)
        assert acks.position == (entries[oldest - 1][1] if oldest else "0")
    assert acks.unacked == len(entries) - len(acknowledged)


def test_an_unacknowledged_reset_holds_the_position_before_it() -> None:
    acks = Acks("0")
    acks.handed_out(1, "1")
    acks.handed_out(2, "1415271879041")
    acks.ack(2)
    assert acks.position == "0"
    acks.ack(1)
    assert acks.position == "1415271879041"


def test_acknowledged_events_behind_one_that_is_not_take_no_room() -> None:
    acks = Acks("")
    acks.handed_out(1, "1")
    tracemalloc.start()
    try:
        for number in range(2, 20_000):
            acks.handed_out(number, str(number))
            acks.ack(number)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert (acks.position, acks.unacked) == ("", 1)
    acks.ack(1)
    assert (acks.position, acks.unacked) == ("19999", 0)


def test_checkpoints_behind_an_unacknowledged_event_count() -> None:
    acks = Acks("")
    acks.handed_out(0, "7")
    for number in range(1, 1000):
        acks.passed(str(number))
    assert acks.position == ""
    acks.ack(0)
    assert acks.position == "999"


def test_an_event_never_handed_out_cannot_be_acknowledged() -> None:
    acks = Acks("")
    acks.handed_out(1, "7")
    with pytest.raises(ValueError, match="not handed out"):
        acks.ack(2)


def test_blocks_become_events() -> None:
    operation = read(Block("545b55c7f095528dd0f3863c", "insert", _DATA), 1)
    assert isinstance(operation, Operation)
    assert (operation.key, operation.parents, operation.ref) == ("video/a", ("x",), None)
    assert operation.timestamp == datetime(2014, 11, 6, 11, 4, 39, 41000, UTC)
    assert read(Block("1", "reset"), 2) == Reset("1")
    assert read(Block("5", "live"), 3) == Live("5")
    assert read(Block("5"), 4) == Checkpoint("5", 4)
    assert read(Block("5", "of another age", "?"), 5) == Checkpoint("5", 5)
    assert read(Block("5", "of another age", "?", has_id=False), 6) is None
    assert read(Block("5", "live", has_id=False), 7) == Live("5")
    assert [
        is_known(block) for block in (Block("5"), Block("5", "of another age"), Block("5", "", "?"))
    ] == [
        True,
        False,
        False,
    ]


def test_an_operation_of_a_transaction_names_it() -> None:
    data = _DATA[:-1] + ',"txn":"4611686018427387904","lsn":1,"of":3}'
    found = read(Block("1", "insert", data), 1)
    assert isinstance(found, Operation)
    assert (found.txn, found.lsn, found.of) == ("4611686018427387904", 1, 3)
    alone = read(Block("1", "insert", _DATA), 1)
    assert isinstance(alone, Operation)
    assert (alone.txn, alone.lsn, alone.of) == (None, None, None)


@pytest.mark.parametrize(
    "block",
    [
        Block("", "reset"),
        Block("12345678901234", "live"),
        Block("545B55C7F095528DD0F3863C", "live"),
        Block("٣", "live"),
        Block("1", "insert"),
        Block("1", "insert", "[]"),
        Block("1", "insert", "{}"),
        Block("1", "insert", _DATA.replace("Z", "")),
        Block("1", "insert", _DATA.replace('["x"]', '"x"')),
        Block("1", "insert", _DATA.replace('["x"]', "[1]")),
        Block("1", "insert", _DATA.replace('"video"', "7")),
        Block("1", "insert", _DATA.replace('"a"', "null")),
        Block("1", "insert", _DATA.replace('["x"]', "[" * 100_000)),
        Block(
            "1",
            "insert",
            _DATA.replace("2014-", "0001-").replace("11-06T11:04:39.041Z", "01-01T00:00:00+01:00"),
        ),
    ],
)
def test_blocks_that_no_agent_sends_are_refused(block: Block) -> None:
    with pytest.raises(ProtocolError):
        read(block, 1)


def test_a_start_may_be_an_id_or_a_time() -> None:
    assert position_of("0") == "0"
    assert position_of(datetime(1970, 1, 1, tzinfo=UTC)) == "1"
    assert position_of(datetime(2014, 11, 6, 11, 4, 39, 41000, UTC)) == "1415271879041"
    for wrong in ("", "now", "-1", datetime(2014, 1, 1)):
        with pytest.raises(ValueError, match=r"event id|time zone"):
            position_of(wrong)
