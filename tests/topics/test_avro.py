"""Avro bodies: fastavro as an independent client, fixed bytes, and hostile bodies."""

import io
import json
import subprocess
import sys
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import MessageError, MessageTooLargeError
from oplogd.ingest.body import TooLargeError
from oplogd.message import MAX_MESSAGE_BYTES, Message, of_json, of_payload
from oplogd.topics.avro import SCHEMAS, AvroCodec
from oplogd.topics.codec import InvalidMessagesError, Polled, PollRequest, publishing
from oplogd.transaction import Isolation
from tests.kits.models.properties import examples

CODEC = AvroCodec()
MOST = 100_000
ID = bytes.fromhex("00000199c82cc0000001" + "00" * 10)
OPLOG_ID = bytes.fromhex("545b55c7002900000000002a")
# A client's own copies of the schemas.
PUBLISH = fastavro.parse_schema(
    {
        "type": "record",
        "name": "PublishRequest",
        "fields": [
            {"name": "transactionWritePointer", "type": ["long", "null"]},
            {"name": "messages", "type": {"type": "array", "items": "bytes"}},
        ],
    }
)
POLL = fastavro.parse_schema(
    {
        "type": "record",
        "name": "PollRequest",
        "fields": [
            {"name": "startFrom", "type": ["bytes", "long", "null"]},
            {"name": "inclusive", "type": "boolean"},
            {"name": "limit", "type": ["int", "null"]},
            {"name": "transaction", "type": ["bytes", "null"]},
        ],
    }
)
ANSWER = fastavro.parse_schema(
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "Answer",
            "fields": [{"name": "id", "type": "bytes"}, {"name": "payload", "type": "bytes"}],
        },
    }
)


def written(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


def publish(messages: list[bytes], pointer: int | None = None) -> bytes:
    return written(PUBLISH, {"transactionWritePointer": pointer, "messages": messages})


def poll(start: Any = None, inclusive: bool = True, limit: Any = None, txn: Any = None) -> bytes:
    return written(
        POLL, {"startFrom": start, "inclusive": inclusive, "limit": limit, "transaction": txn}
    )


def messages_of(body: bytes, ttl: int | None = None, most: int = MOST) -> list[Message]:
    """Return what a publish stores, decoded in as many pieces as it takes."""
    pieces = publishing(CODEC.split(body), lambda each: CODEC.message(each, ttl), most)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            found: list[Message] = end.value
            return found


def refused(body: bytes) -> tuple[str, str]:
    with pytest.raises(MessageError) as caught:
        messages_of(body)
    return caught.value.field, caught.value.reason


def refused_poll(body: bytes) -> tuple[str, str]:
    with pytest.raises(MessageError) as caught:
        CODEC.decode_poll(body)
    return caught.value.field, caught.value.reason


# --- Independent clients ---


@examples(2)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=300), st.none() | st.just(60))
@example([b""], None)
@example([b"a"] * 62, None)
@example([b"a"] * 63, None)
@example([b"a"] * 64, None)
@example([bytes(64)] * 127, None)
def test_messages_that_fastavro_writes_are_read(payloads: list[bytes], ttl: int | None) -> None:
    assert messages_of(publish(payloads), ttl) == [of_payload(each, ttl) for each in payloads]


@examples()
@given(
    st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=130), min_size=1, max_size=5),
    st.booleans(),
)
def test_several_blocks_with_or_without_sizes_are_read_like_one(
    blocks: list[list[bytes]], sized: bool
) -> None:
    body = b"\x02"
    for block in blocks:
        items = b"".join(written("bytes", each) for each in block)
        count = len(block)
        body += (
            written("long", -count) + written("long", len(items))
            if sized
            else written("long", count)
        )
        body += items
    payloads = [each for block in blocks for each in block]
    assert messages_of(body + b"\0") == [of_payload(each) for each in payloads]


@examples()
@given(
    st.none()
    | st.integers(0, 2**63 - 1)
    | st.binary(min_size=20, max_size=20)
    | st.binary(min_size=12, max_size=12),
    st.booleans(),
    st.none() | st.integers(1, 2**31 - 1),
)
def test_polls_that_fastavro_writes_are_read(
    start: bytes | int | None, inclusive: bool, limit: int | None
) -> None:
    assert CODEC.decode_poll(poll(start, inclusive, limit)) == PollRequest(start, inclusive, limit)


@examples()
@given(st.lists(st.tuples(st.binary(min_size=20, max_size=20), st.binary(max_size=99)), max_size=9))
def test_answers_are_what_fastavro_reads(messages: list[tuple[bytes, bytes]]) -> None:
    answer = CODEC.encode(
        [Polled(id_.hex(), of_payload(payload).data.decode()) for id_, payload in messages]
    )
    read = fastavro.schemaless_reader(io.BytesIO(answer), ANSWER, None)
    assert read == [{"id": id_, "payload": payload} for id_, payload in messages]
    assert written(ANSWER, read) == answer


def test_an_answer_has_the_payload_alone() -> None:
    message = of_json({"payload": "é", "key": "k", "headers": [["a", "b"]]})
    null = of_json({"payload": None})
    read = fastavro.schemaless_reader(
        io.BytesIO(
            CODEC.encode([Polled(ID.hex(), each.data.decode()) for each in (message, null)])
        ),
        ANSWER,
        None,
    )
    assert read == [{"id": ID, "payload": "é".encode()}, {"id": ID, "payload": b""}]


def test_a_message_of_the_oplog_is_the_text_of_an_operation() -> None:
    operation = b'{"event":"insert","type":"a","id":"1"}'
    assert [CODEC.operation(each) for each in CODEC.split(publish([operation]))] == [operation]


# --- Fixed bytes ---


def test_the_bytes_of_a_publish_are_these() -> None:
    body = bytes.fromhex("02040461ff0000")
    assert publish([b"a\xff", b""]) == body
    assert messages_of(body) == [of_payload(b"a\xff"), of_payload(b"")]


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ("04010202", PollRequest(None, True, None)),
        ("02d00f0000c80102", PollRequest(1000, False, 100)),
        ("0028" + ID.hex() + "01000202", PollRequest(ID, True, 1)),
        ("0018" + OPLOG_ID.hex() + "000202", PollRequest(OPLOG_ID, False, None)),
    ],
)
def test_the_bytes_of_polls_are_these(body: str, request_: PollRequest) -> None:
    assert poll(*request_[:3]) == bytes.fromhex(body)
    assert CODEC.decode_poll(bytes.fromhex(body)) == request_
    committed = CODEC.decode_poll(bytes.fromhex(body), Isolation.READ_COMMITTED)
    assert committed == request_._replace(isolation=Isolation.READ_COMMITTED)


def test_the_bytes_of_answers_are_these() -> None:
    assert CODEC.encode([]) == b"\0"
    text = Polled(ID.hex(), '{"payload":"a"}')
    raw = Polled(OPLOG_ID.hex(), '{"payload":"/w==","encoding":"base64"}')
    assert CODEC.encode([text, raw]) == bytes.fromhex(
        "0428" + ID.hex() + "026118" + OPLOG_ID.hex() + "02ff00"
    )


def test_the_published_schemas_are_those_of_the_bodies() -> None:
    assert set(SCHEMAS) == {"PublishRequest", "PublishedInfo", "PollRequest", "PollResponse"}
    one = fastavro.parse_schema(json.loads(json.dumps(SCHEMAS["PublishRequest"])))
    assert one["fields"] == PUBLISH["fields"]  # type: ignore[index, call-overload]
    two = fastavro.parse_schema(json.loads(json.dumps(SCHEMAS["PollRequest"])))
    assert two["fields"] == POLL["fields"]  # type: ignore[index, call-overload]
    three = fastavro.parse_schema(json.loads(json.dumps(SCHEMAS["PollResponse"])))
    assert three["items"]["fields"] == ANSWER["items"]["fields"]  # type: ignore[index, call-overload]


# --- Hostile bodies ---


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
        found = CODEC.decode_poll(body)
    except MessageError:
        return
    read = fastavro.schemaless_reader(io.BytesIO(body), POLL, None)
    assert isinstance(read, dict)
    assert found == PollRequest(read["startFrom"], read["inclusive"], read["limit"])


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

    with pytest.raises(TooLargeError, match=r"more than the queue holds \(1,000\)"):
        for _ in publishing(CODEC.split(body), check, 1000):
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
    pieces = publishing(
        CODEC.split(publish([b"a"] * 1000)), lambda each: CODEC.message(each, None), MOST
    )
    assert sum(1 for _ in pieces) == 16


# --- The agent without Avro ---


@pytest.mark.process
def test_fastavro_is_imported_on_first_use() -> None:
    code = (
        "import sys, oplogd.server, oplogd.topics.avro as avro\n"
        "codec = avro.AvroCodec()\n"
        "print('fastavro' in sys.modules)\n"
        "list(codec.split(bytes([2, 2, 0, 0])))\n"
        "print('fastavro' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "True"]
