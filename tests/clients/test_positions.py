"""Acknowledgements in any order, and the file that keeps what they come to."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.acks import Acks
from oplogc.errors import ProtocolError, StateFileError
from oplogc.events import Checkpoint, Live, Operation, Reset, position_of, read
from oplogc.sse import Block
from oplogc.state_file import Saver, read_position, write_position

_DATA = '{"timestamp":"2014-11-06T11:04:39.041Z","parents":["x"],"type":"video","id":"a"}'


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["1", "5", "6", "7"])), max_size=30), st.data())
def test_the_position_is_the_last_id_before_the_oldest_unacknowledged_event(
    entries: list[tuple[bool, str]], data: st.DataObject
) -> None:
    acks = Acks("0")
    acknowledged: set[int] = set()
    for number, (passed, id_) in enumerate(entries):
        if passed:
            acks.passed(number, id_)
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


def test_checkpoints_behind_an_unacknowledged_event_take_no_room() -> None:
    acks = Acks("")
    acks.handed_out(0, "7")
    for number in range(1, 1000):
        acks.passed(number, str(number))
    assert len(acks._entries) == 2
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


@pytest.mark.parametrize("content", ["", "0", "1415271879041", "545b55c7f095528dd0f3863c", "1\n"])
def test_a_state_file_holds_an_id(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state"
    path.write_text(content)
    assert read_position(path) == content.strip()


@pytest.mark.parametrize("content", [b"12345678901234", b"545b", b"\xff", b" 1", b"1\n\n"])
def test_a_state_file_with_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(StateFileError, match="Move it away"):
        read_position(path)


def test_a_state_file_is_replaced_in_one_step_and_a_link_to_it_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "state", tmp_path / "link"
    link.symlink_to(path)
    assert read_position(link) == ""
    write_position(link, "5")
    before = path.stat().st_ino
    write_position(link, "6")
    assert (path.read_text(), link.is_symlink(), path.stat().st_ino != before) == ("6", True, True)
    assert sorted(os.listdir(tmp_path)) == ["link", "state"]


def test_a_position_that_cannot_be_saved_is_told_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saver = Saver(tmp_path / "missing" / "state", lambda: "5", 0.001)
    saver.changed()
    with pytest.raises(StateFileError, match="cannot write"):
        saver.close()
    (tmp_path / "missing").mkdir()
    saver.close()
    assert (tmp_path / "missing" / "state").read_text() == "5"
