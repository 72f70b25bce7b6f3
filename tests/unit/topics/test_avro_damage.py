"""Hostile Avro bodies: any bytes, cut, damaged and too many."""

import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import MessageError, MessageTooLargeError
from oplogd.model.message import MAX_MESSAGE_BYTES, Message, of_payload
from oplogd.topics.codec.codec import InvalidMessagesError, PollRequest, reading_publish
from tests.kits.models.properties import examples
from tests.kits.topics.messages import decode_poll
from tests.unit.topics.avro_bodies import (
    CODEC,
    ID,
    MOST,
    POLL,
    PUBLISH,
    messages_of,
    poll,
    publish,
    refused,
    refused_poll,
    written,
)


@examples(5)
@given(
    st.binary(max_size=60)
    | st.tuples(st.just(b"\x02"), st.binary(max_size=60)).map(b"".join)
    | st.lists(st.binary(max_size=5), max_size=70).map(publish)
)
def test_any_bytes_are_messages_or_one_error(body: bytes) -> None:
    try:
        found = messages_of(body)
    except MessageError:
        return
    read = fastavro.schemaless_reader(io.BytesIO(body), PUBLISH, None)
    assert isinstance(read, dict)
    assert found == [of_payload(each) for each in read["messages"]]


@examples(5)
@given(
    st.binary(max_size=40)
    | st.tuples(
        st.sampled_from([b"\0\x28", b"\0\x18", b"\x02", b"\x04"]), st.binary(max_size=40)
    ).map(b"".join)
)
def test_any_bytes_are_a_poll_or_one_error(body: bytes) -> None:
    try:
        found = decode_poll(CODEC, body)
    except MessageError:
        return
    read = fastavro.schemaless_reader(io.BytesIO(body), POLL, None)
    assert isinstance(read, dict)
    assert found == PollRequest(read["startFrom"], read["inclusive"], read["limit"])


@pytest.mark.thorough
@pytest.mark.parametrize("body", [publish([b"abc", b"", b"d" * 100] * 50), poll(ID, True, 5)])
def test_a_body_that_is_cut_anywhere_is_refused(body: bytes) -> None:
    refuse = refused if body[:1] == b"\x02" else refused_poll
    for end in range(len(body)):
        field, reason = refuse(body[:end])
        assert field.partition("[")[0] in (
            "transactionWritePointer",
            "messages",
            "startFrom",
            "inclusive",
            "limit",
            "transaction",
        )
        assert "ends here" in reason or "announces" in reason


HUGE = written("long", 2**63 - 1)
LEAST = written("long", -(2**63))


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (b"", "transactionWritePointer", "the Avro body ends here"),
        (b"\x02", "messages", "the Avro body ends here"),
        (b"\x04", "transactionWritePointer", "is not Avro: its union has no branch 2"),
        (b"\x01", "transactionWritePointer", "is not Avro: its union has no branch -1"),
        (publish([b"a"], pointer=7), "transactionWritePointer", "must be null"),
        (publish([]), "messages", "there is none"),
        (b"\x02\x02\x02a", "messages", "the Avro body ends here"),
        (b"\x02\x02\x04a", "messages[0]", "announces 2 bytes, but 1 follow"),
        (b"\x02\x04\x02a\x06a\0", "messages[1]", "announces 3 bytes, but 2 follow"),
        (b"\x02\x02\x01a\0", "messages[0]", "announces -1 bytes, but 2 follow"),
        (
            b"\x02" + HUGE,
            "messages",
            "announces 9,223,372,036,854,775,807 items, but 0 bytes follow",
        ),
        (
            b"\x02" + written("long", 2**40) + bytes(1000),
            "messages",
            "announces 1,099,511,627,776 items, but 1,000 bytes follow",
        ),
        (
            b"\x02\x02" + HUGE,
            "messages[0]",
            "announces 9,223,372,036,854,775,807 bytes, but 0 follow",
        ),
        (
            b"\x02" + LEAST + b"\0",
            "messages",
            "announces 9,223,372,036,854,775,808 items, but 0 bytes follow",
        ),
        (
            b"\x02" + LEAST + HUGE,
            "messages",
            "announces 9,223,372,036,854,775,807 bytes, but 0 follow",
        ),
        (
            b"\x02\x01\x02\x02a\0",
            "messages",
            "is not Avro: a block has another size than announced",
        ),
        (
            b"\x02\x01\x06\x02a\0\0",
            "messages",
            "is not Avro: a block has another size than announced",
        ),
        (b"\x02\x01\x01\x02a\0", "messages", "announces -1 bytes, but 3 follow"),
        (publish([b"a"]) + b"\0", "body", "has bytes after the end of its Avro: 1"),
        (
            b"\x02" + b"\xff" * 9 + b"\x02",
            "messages",
            "is not Avro: a number has more than 64 bits",
        ),
        (b"\x02" + b"\x80" * 10, "messages", "is not Avro: a number has more than 64 bits"),
        (b"\x02" + b"\x80" * 9, "messages", "the Avro body ends here"),
        pytest.param(
            b"\x80" * 10_000_000,
            "transactionWritePointer",
            "is not Avro: a number has more than 64 bits",
            id="a number of 10 million bytes",
        ),
        (b"Obj\x01", "transactionWritePointer", "is not Avro: its union has no branch -40"),
        (
            b'{"messages":["a"]}',
            "transactionWritePointer",
            "is not Avro: its union has no branch -62",
        ),
    ],
)
def test_a_damaged_publish_is_refused_with_the_part_at_fault(
    body: bytes, field: str, reason: str
) -> None:
    assert refused(body) == (field, reason)


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (b"", "startFrom", "the Avro body ends here"),
        (b"\x06", "startFrom", "is not Avro: its union has no branch 3"),
        (b"\0" + HUGE, "startFrom", "announces 9,223,372,036,854,775,807 bytes, but 0 follow"),
        (poll(-1), "startFrom", "must not be negative"),
        (poll(bytes(19)), "startFrom", "an id has 20 bytes, not 19"),
        (poll(b""), "startFrom", "an id has 20 bytes, not 0"),
        (b"\x04", "inclusive", "the Avro body ends here"),
        (b"\x04\x02\x02\x02", "inclusive", "is not Avro: a boolean is 0 or 1"),
        (poll(limit=0), "limit", "must be at least 1"),
        (poll(limit=-5), "limit", "must be at least 1"),
        (poll(txn=b"{}"), "transaction.readPointer", "is required"),
        (poll() + b"\0", "body", "has bytes after the end of its Avro: 1"),
    ],
)
def test_a_bad_poll_is_refused_with_the_part_at_fault(body: bytes, field: str, reason: str) -> None:
    assert refused_poll(body) == (field, reason)


def test_more_messages_than_can_be_stored_are_refused_before_most_are_decoded() -> None:
    count = 10_000_000
    body = b"\x02" + written("long", count) + bytes(count) + b"\0"
    taken = 0

    def check(payload: bytes) -> Message:
        nonlocal taken
        taken += 1
        return CODEC.message(payload, None)

    with pytest.raises(TooLargeError, match=r"more than the queue holds \(1,000; see"):
        for _ in reading_publish(CODEC, body, check, 1000):
            pass
    assert taken == 1024


def test_a_message_over_the_limit_is_named() -> None:
    with pytest.raises(InvalidMessagesError) as caught:
        messages_of(publish([b"a", bytes(MAX_MESSAGE_BYTES + 1)]))
    assert caught.value.too_large
    assert str(caught.value) == "messages[1]: has 1,048,577 bytes, more than 1,048,576"
    with pytest.raises(MessageTooLargeError):
        CODEC.message(bytes(MAX_MESSAGE_BYTES + 1), None)


def test_work_on_a_body_is_cut_into_pieces() -> None:
    body = publish([b"a"] * 1000)
    work = reading_publish(CODEC, body, lambda each: CODEC.message(each, None), MOST)
    assert sum(1 for _ in work) == 16
