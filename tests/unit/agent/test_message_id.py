"""Ids of messages are read strictly, and their bytes and digits sort like their parts."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import PositionError
from oplogd.model.message_id import (
    MAX_SEQUENCE,
    MessageId,
    before_record,
    end_id,
    next_write_stamp,
    parse_message_id,
    record_id,
    stamp,
    stored_id,
    unstamp,
)
from tests.kits.models.properties import examples

MAX_MS = (1 << 64) - 1
START_MS = 1_700_000_000_000
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


# --- Records of transactions, and messages that were stored ---

FIRST_WRITE_MS = 1 << 40
write_stamps = st.builds(
    stamp, st.integers(FIRST_WRITE_MS, (1 << 47) - 1), st.integers(0, 0x7FFF)
) | st.sampled_from(
    [stamp(FIRST_WRITE_MS, 0), stamp(START_MS, 0), stamp(START_MS, 0x7FFF), stamp(START_MS + 1, 0)]
)
lsns = st.integers(0, 1 << 24) | st.sampled_from([0, 1, 2])


@examples(3)
@given(write_stamps, write_stamps, st.booleans(), SEQUENCES)
def test_stored_ids_sort_by_write_stamp_behind_their_place(
    one: int, other: int, is_last: bool, sequence: int
) -> None:
    low, high = sorted([one, other])
    first = stored_id(START_MS, sequence, low, is_last=False)
    second = stored_id(START_MS, sequence, high, is_last=is_last)
    assert MessageId(START_MS, sequence) < first < end_id(START_MS, sequence)
    assert (first < second) == (low < high or is_last)
    assert second < end_id(START_MS, sequence)
    assert (str(first) < str(second)) == (first < second)


@examples(3)
@given(write_stamps)
@example(stamp(START_MS, 1))
@example(stamp(FIRST_WRITE_MS, 1))
def test_a_reader_at_a_stored_message_has_it_and_the_last_one_is_the_end(number: int) -> None:
    inside = stored_id(START_MS, 3, number, is_last=False)
    assert (inside.records_after, inside.is_inside, inside.is_stored) == (number, True, True)
    last = stored_id(START_MS, 3, number, is_last=True)
    assert (last.records_after, last.is_inside, last.is_stored) == (None, False, True)
    assert parse_message_id(str(last)) == last


@examples(3)
@given(lsns)
def test_a_reader_at_a_record_has_it_and_the_last_one_is_the_end(lsn: int) -> None:
    inside = record_id(START_MS, 3, lsn, is_last=False)
    assert (inside.records_after, inside.is_inside, inside.is_stored) == (lsn, True, False)
    last = record_id(START_MS, 3, lsn, is_last=True)
    assert (last.records_after, last.is_inside, last.is_stored) == (None, False, False)


def test_the_place_of_an_entry_is_before_its_records_and_its_end_behind_them() -> None:
    place, end = MessageId(START_MS, 3), end_id(START_MS, 3)
    assert (place.records_after, place.is_inside, place.is_stored) == (-1, False, False)
    assert (end.records_after, end.is_inside, end.is_stored) == (None, False, False)


@examples(3)
@given(write_stamps, write_stamps, st.booleans())
@example(stamp(START_MS, 0), stamp(START_MS - 1, 0x7FFF), False)
@example(stamp(START_MS, 1), stamp(START_MS, 0), True)
def test_the_position_before_a_stored_message_has_all_before_it_and_not_the_message(
    number: int, other: int, is_last: bool
) -> None:
    before = before_record(stored_id(START_MS, 3, number, is_last=is_last))
    has = before.records_after
    assert has is not None
    assert before[:2] == (START_MS, 3)
    assert has < number
    assert (other <= has) == (other < number)


@examples()
@given(lsns, st.booleans())
def test_the_position_before_a_record_has_the_one_before_it(lsn: int, is_last: bool) -> None:
    assert before_record(record_id(START_MS, 3, lsn, is_last=is_last)).records_after == lsn - 1


@examples(2)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=50), st.sampled_from([0, START_MS]))
def test_write_stamps_ascend_whatever_the_clock_does(steps: list[int], now: int) -> None:
    last = 0
    for step in steps:
        now += step
        following = next_write_stamp(last, max(now, 0))
        ms, sequence = unstamp(following)
        assert following > last
        assert sequence <= 0x7FFF
        assert ms >= max(now, FIRST_WRITE_MS)
        last = following


def test_a_write_stamp_is_the_first_of_its_ms_unless_one_was_there_before() -> None:
    assert unstamp(next_write_stamp(0, START_MS)) == (START_MS, 0)
    assert unstamp(next_write_stamp(stamp(START_MS, 0), START_MS)) == (START_MS, 1)
    assert unstamp(next_write_stamp(stamp(START_MS, 9), START_MS - 5)) == (START_MS, 10)
    assert unstamp(next_write_stamp(stamp(START_MS, 9), START_MS + 5)) == (START_MS + 5, 0)


def test_a_write_stamp_after_15_bits_of_one_ms_is_the_first_of_the_next() -> None:
    """The highest bit of a sequence tells the last message of a PUBLISH entry."""
    last = stamp(START_MS, 0x7FFE)
    found = []
    for _ in range(3):
        last = next_write_stamp(last, START_MS)
        found.append(unstamp(last))
    assert found == [(START_MS, 0x7FFF), (START_MS + 1, 0), (START_MS + 1, 1)]
