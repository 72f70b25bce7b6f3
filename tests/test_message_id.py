"""Ids of messages are read strictly, and their bytes and digits sort like their parts."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import PositionError
from oplogd.message_id import MAX_SEQUENCE, MessageId, parse_message_id, stamp, unstamp
from tests.properties import examples

MAX_MS = (1 << 64) - 1
# Parts that differ in one byte at most, so that the order of each byte counts.
TIMES = st.integers(0, MAX_MS) | st.sampled_from([0, 1, 0xFF, 0x100, MAX_MS - 1, MAX_MS])
SEQUENCES = st.integers(0, MAX_SEQUENCE) | st.sampled_from([0, 1, 0xFF, 0x100, MAX_SEQUENCE])

ids = st.builds(MessageId, TIMES, SEQUENCES, TIMES, SEQUENCES)


@examples(3)
@given(ids)
@example(MessageId(0, 0))
@example(MessageId(MAX_MS, MAX_SEQUENCE, MAX_MS, MAX_SEQUENCE))
def test_an_id_survives_its_bytes_and_its_digits(message_id: MessageId) -> None:
    raw, text = message_id.to_bytes(), str(message_id)
    assert len(raw) == 20
    assert text == raw.hex()
    assert MessageId.of_bytes(raw) == message_id
    assert parse_message_id(text) == message_id


@examples(5)
@given(ids, ids)
def test_bytes_and_digits_sort_like_the_parts(one: MessageId, other: MessageId) -> None:
    assert (one.to_bytes() < other.to_bytes()) == (one < other)
    assert (str(one) < str(other)) == (one < other)


def test_the_parts_stand_at_their_bytes() -> None:
    text = "00000199c82cc0001234" + "00000199c82cbfff5678"
    assert str(MessageId(0x199C82CC000, 0x1234, 0x199C82CBFFF, 0x5678)) == text
    assert parse_message_id(text) == MessageId(0x199C82CC000, 0x1234, 0x199C82CBFFF, 0x5678)


def test_a_message_that_is_published_at_once_has_zeros_in_the_last_ten_bytes() -> None:
    assert str(MessageId(0x199C82CC000, 1)) == "00000199c82cc0000001" + "0" * 20


@examples(5)
@given(
    st.text()
    | st.text("0123456789abcdefABCDEF \n\u0660\uff11\u00b2", min_size=38, max_size=42)
    | st.tuples(ids.map(str), st.sampled_from(["", "\n", " ", "0", "\u2028"])).map("".join)
)
def test_a_text_is_an_id_or_is_refused(text: str) -> None:
    if re.match(r"^[0-9a-f]{40}\Z", text):
        assert str(parse_message_id(text)) == text
    else:
        with pytest.raises(PositionError, match="40 lower-case hexadecimal digits"):
            parse_message_id(text)


@pytest.mark.parametrize("length", [0, 1, 12, 19, 21, 40])
def test_bytes_of_another_length_are_no_id(length: int) -> None:
    with pytest.raises(PositionError, match=f"^a message id has 20 bytes, not {length}$"):
        MessageId.of_bytes(b"\0" * length)


pairs = st.tuples(TIMES, SEQUENCES)


@examples(3)
@given(pairs)
def test_a_stamp_holds_time_and_sequence(pair: tuple[int, int]) -> None:
    assert unstamp(stamp(*pair)) == pair


@examples(3)
@given(pairs, pairs)
def test_stamps_sort_like_time_and_sequence(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (stamp(*one) < stamp(*other)) == (one < other)


@examples()
@given(TIMES)
def test_the_stamp_after_the_last_of_a_ms_is_the_first_of_the_next(ms: int) -> None:
    assert unstamp(stamp(ms, MAX_SEQUENCE) + 1) == (ms + 1, 0)
