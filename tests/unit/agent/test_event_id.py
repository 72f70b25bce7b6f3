"""Event ids are read strictly and sort like their places in the log."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import PositionError
from oplogd.model.event_id import (
    MAX_MS,
    MAX_OFFSET,
    EventId,
    Mark,
    Millis,
    format_id,
    parse_position,
    prefix,
)
from tests.kits.models.properties import examples

POSITION = re.compile(r"^(?:[0-9]{1,13}|[0-9a-f]{24})\Z", re.ASCII)

marks = st.builds(Mark, st.integers(0, MAX_OFFSET), st.integers(0, MAX_MS))


@examples(3)
@given(marks)
@example(Mark(0, 0))
@example(Mark(MAX_OFFSET, MAX_MS))
def test_an_id_names_its_mark(mark: Mark) -> None:
    text = format_id(mark)
    assert re.fullmatch("[0-9a-f]{24}", text)
    assert text.startswith(prefix(mark.ms))
    position = parse_position(text)
    assert position == EventId(mark.ms // 1000, mark.ms % 1000, mark.offset)
    assert (position.ms, position.offset) == (mark.ms, mark.offset)


@examples(3)
@given(marks, marks)
def test_ids_sort_by_time_then_offset(one: Mark, other: Mark) -> None:
    by_id = format_id(one) < format_id(other)
    assert by_id == ((one.ms, one.offset) < (other.ms, other.offset))


@examples()
@given(st.integers(0, 10**13 - 1), st.integers(1, 13))
def test_up_to_13_digits_are_milliseconds(ms: int, width: int) -> None:
    assert parse_position(f"{ms:0{width}d}") == Millis(ms)


@examples()
@given(st.from_regex(r"[0-9a-f]{24}", fullmatch=True, alphabet="0123456789abcdef"))
def test_any_object_id_is_read_whatever_its_milliseconds(text: str) -> None:
    position = parse_position(text)
    assert isinstance(position, EventId)
    assert f"{position.seconds:08x}{position.millis:04x}{position.offset:012x}" == text


@examples(5)
@given(
    st.text()
    | st.text("0123456789abcdefABCDEF \n\u0660\uff11\u00b2", max_size=26)
    | st.integers(0, 10**30).map(str)
    | st.tuples(marks.map(format_id), st.sampled_from(["\n", " ", "0", "\r", "\u2028"])).map(
        "".join
    )
)
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    if POSITION.match(text):
        parse_position(text)
    else:
        with pytest.raises(PositionError, match="up to 13 decimal digits"):
            parse_position(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "1.0",
        "1_000",
        " 1",
        "1 ",
        "1\n",
        "\n1",
        "12345678901234",
        "545b55c7f095528dd0f3863",
        "545b55c7f095528dd0f3863c0",
        "545B55C7F095528DD0F3863C",
        "545b55c7f095528dd0f3863c\n",
        "545b55c7f095528dd0f3863g",
        "0x5b55c7f095528dd0f3863c",
        "\u0661\u0662\u0663",
        "\uff11\uff12\uff13",
        "\u00b2",
        "live",
    ],
)
def test_these_are_no_ids(text: str) -> None:
    with pytest.raises(PositionError):
        parse_position(text)


def test_an_object_id_of_the_first_server_is_read() -> None:
    assert parse_position("545b55c7f095528dd0f3863c") == EventId(0x545B55C7, 0xF095, 0x528DD0F3863C)
