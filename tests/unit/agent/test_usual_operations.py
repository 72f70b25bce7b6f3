"""Arrays of usual operations are decoded at once, with the result that each alone has."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import OperationError
from oplogd.model.operation import Operation, decode, decode_usual
from tests.kits.models.properties import examples
from tests.unit.agent.test_operation import ARRIVAL, VALID, changed, nested, valid, without

USUAL = [
    VALID,
    changed(type="Video"),
    changed(id="a/b,c\n\x7fé\u2028"),
    changed(parents=None),
    changed(parents=["a", "a"]),
    changed(timestamp=None),
    changed(timestamp="2014-11-06T13:04:39+02:00"),
    changed(timestamp=f"2014-11-06T11:04:39.{'9' * 100}Z"),
    without("parents"),
    without("timestamp"),
]
UNUSUAL = [
    changed(event="INSERT"),
    changed(event="merge"),
    changed(type=""),
    changed(type="a/b"),
    changed(type="a,b"),
    changed(type="é" * 64),
    changed(type="é" * 128),
    changed(id=""),
    changed(id="é" * 300),
    changed(id="é" * 600),
    changed(id="a\0"),
    changed(parents=[""]),
    changed(parents=nested(3)),
    changed(timestamp="2014-11-06"),
    changed(timestamp="2014-02-30T11:04:39.041Z"),
    changed(more=nested(9)),
    without("event"),
    without("type"),
    without("id"),
    [VALID],
    "text",
    None,
]


def alone(given_: Any) -> Operation | str:
    try:
        return decode(json.dumps(given_).encode(), ARRIVAL)
    except OperationError as error:
        return str(error)


def together(*given_: Any) -> list[Operation] | None:
    return decode_usual(json.dumps(given_).encode(), ARRIVAL)


def test_usual_operations_are_decoded_together() -> None:
    assert together(*USUAL, *USUAL) == [alone(each) for each in [*USUAL, *USUAL]]


@pytest.mark.parametrize("given_", UNUSUAL, ids=lambda each: json.dumps(each)[:60])
def test_an_unusual_one_leaves_all_of_them_to_the_other_way(given_: Any) -> None:
    assert together(VALID, given_, VALID) is None


@pytest.mark.parametrize("body", [b"", b"[", b"{}", b"[1]", b'["\xff"]', b"[{}] x"])
def test_no_array_of_operations_is_left_to_the_other_way(body: bytes) -> None:
    assert decode_usual(body, ARRIVAL) is None


@examples(20)
@given(st.lists(valid | st.sampled_from([*USUAL, *UNUSUAL]), max_size=4))
def test_the_result_is_that_of_each_alone(given_: list[Any]) -> None:
    assert together(*given_) in (None, [alone(each) for each in given_])
