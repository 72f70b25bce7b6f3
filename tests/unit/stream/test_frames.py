"""The bytes of each kind of block, as the first server's clients read them."""

from typing import cast
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import Mark
from oplogd.model.operation import Data, Operation, decode_data
from oplogd.store import State, StateCursor, Store
from oplogd.stream.phases.oplog_bridge import OplogBridge
from oplogd.stream.ring.frames import (
    HEARTBEAT,
    RESET,
    Framer,
    checkpoint_frame,
    live_frame,
)
from tests.kits.models.operations import entry, operation
from tests.kits.models.properties import examples


def data_of(made: Operation) -> Data:
    return decode_data(made.data.decode())


BRIDGE = OplogBridge(cast(Store, None), Framer())
SINGLE = operation("update", "video", "xekw", ["x3kd2"])
DATA = '{"timestamp":"2014-11-06T11:04:39.041Z","parents":["x3kd2"],"type":"video","id":"xekw"}'


def test_an_operation_is_id_event_data_and_a_blank_line() -> None:
    logged = entry(0xD0F3863C, 1_415_271_879_041, SINGLE)
    assert Framer().entry(logged, decode_data(logged.data)) == (
        f"id: 545b55c700290000d0f3863c\nevent: update\ndata: {DATA}\n\n".encode()
    )


@pytest.mark.parametrize(("deleted", "event"), [(False, "insert"), (True, "delete")])
def test_a_state_is_an_insert_or_a_delete_whose_id_is_its_time(deleted: bool, event: str) -> None:
    state = State(StateCursor(1_415_271_879_041, 7), deleted, DATA)
    assert (
        Framer().state(state, decode_data(DATA))
        == f"id: 1415271879041\nevent: {event}\ndata: {DATA}\n\n".encode()
    )


def test_marks_carry_one_empty_data_line() -> None:
    assert RESET == b"id: 1\nevent: reset\ndata:\n\n"
    assert live_frame("12") == b"id: 12\nevent: live\ndata:\n\n"


def test_a_checkpoint_has_an_id_only_and_a_heartbeat_is_a_comment() -> None:
    assert checkpoint_frame("12") == b"id: 12\n\n"
    assert HEARTBEAT == b":\n"


def test_the_position_before_the_first_entry_is_the_time_of_the_logs_beginning() -> None:
    assert BRIDGE.position(Mark(0, 1_415_271_879_041), 1) == "1415271879041"


def test_a_log_that_began_at_time_0_is_resumed_at_the_id_of_reset() -> None:
    assert BRIDGE.position(Mark(0, 0), 1) == "1"


def test_entries_of_one_time_and_then_of_another_have_their_own_ids() -> None:
    framer = Framer()
    ids = [
        framer.entry(entry(n, ms, SINGLE), decode_data(DATA))[4:28]
        for n, ms in [(1, 5), (2, 5), (3, 6), (4, 5)]
    ]
    assert ids == [
        b"000000000005000000000001",
        b"000000000005000000000002",
        b"000000000006000000000003",
        b"000000000005000000000004",
    ]


def test_the_reference_is_added_last_and_escaped() -> None:
    framer = Framer("https://api.example.com/{{type}}/{{id}}?again={{id}}")
    made = operation("insert", "a b", '../é"&{{type}}')
    block = framer.entry(entry(1, 1, made), data_of(made)).decode()
    assert block.endswith(
        ',"ref":"https://api.example.com/a%20b/..%2F%C3%A9%22%26%7B%7Btype%7D%7D'
        '?again=..%2F%C3%A9%22%26%7B%7Btype%7D%7D"}\n\n'
    )
    state = framer.state(
        State(StateCursor(1, 1), False, made.data.decode()), data_of(made)
    ).decode()
    assert state.partition("data: ")[2] == block.partition("data: ")[2]


@examples(2)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_a_block_is_one_data_line_whatever_the_names(type_: str, id_: str) -> None:
    made = operation("insert", type_, id_)
    block = Framer("x:{{type}}/{{id}}").entry(entry(1, 1, made), data_of(made)).decode()
    assert len(block.splitlines()) == 4
    assert block.endswith("\n\n")
    url = block[block.index(',"ref":"x:') + 10 : -4]
    assert [unquote(part) for part in url.split("/")] == [type_, id_]
