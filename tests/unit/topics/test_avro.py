"""Avro bodies: fastavro as an independent client, and fixed bytes."""

import io
import json
import subprocess
import sys

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.decode.pieces import at_once
from oplogd.model.message import of_payload
from oplogd.model.transaction import Isolation
from oplogd.topics.codec.avro import SCHEMAS
from oplogd.topics.codec.codec import PollMessage, PollRequest, reading_publish
from tests.kits.models.properties import examples
from tests.kits.topics.messages import decode_poll, of_json
from tests.unit.topics.avro_bodies import (
    ANSWER,
    CODEC,
    ID,
    MOST,
    OPLOG_ID,
    POLL,
    PUBLISH,
    messages_of,
    poll,
    publish,
    written,
)

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
    assert decode_poll(CODEC, poll(start, inclusive, limit)) == PollRequest(start, inclusive, limit)


@examples()
@given(st.lists(st.tuples(st.binary(min_size=20, max_size=20), st.binary(max_size=99)), max_size=9))
def test_answers_are_what_fastavro_reads(messages: list[tuple[bytes, bytes]]) -> None:
    answer = CODEC.encode(
        [PollMessage(id_.hex(), of_payload(payload).data.decode()) for id_, payload in messages]
    )
    read = fastavro.schemaless_reader(io.BytesIO(answer), ANSWER, None)
    assert read == [{"id": id_, "payload": payload} for id_, payload in messages]
    assert written(ANSWER, read) == answer


def test_an_answer_has_the_payload_alone() -> None:
    message = of_json({"payload": "é", "key": "k", "headers": [["a", "b"]]})
    null = of_json({"payload": None})
    read = fastavro.schemaless_reader(
        io.BytesIO(
            CODEC.encode([PollMessage(ID.hex(), each.data.decode()) for each in (message, null)])
        ),
        ANSWER,
        None,
    )
    assert read == [{"id": ID, "payload": "é".encode()}, {"id": ID, "payload": b""}]


def test_a_message_of_the_oplog_is_the_text_of_an_operation() -> None:
    operation = b'{"event":"insert","type":"a","id":"1"}'
    body = publish([operation])
    assert at_once(reading_publish(CODEC, body, CODEC.operation, MOST)) == (None, [operation])


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
    assert decode_poll(CODEC, bytes.fromhex(body)) == request_
    committed = decode_poll(CODEC, bytes.fromhex(body), Isolation.READ_COMMITTED)
    assert committed == request_._replace(isolation=Isolation.READ_COMMITTED)


def test_the_bytes_of_answers_are_these() -> None:
    assert CODEC.encode([]) == b"\0"
    text = PollMessage(ID.hex(), '{"payload":"a"}')
    raw = PollMessage(OPLOG_ID.hex(), '{"payload":"/w==","encoding":"base64"}')
    assert CODEC.encode([text, raw]) == bytes.fromhex(
        "0428" + ID.hex() + "026118" + OPLOG_ID.hex() + "02ff00"
    )


def test_the_published_schemas_are_those_of_the_bodies() -> None:
    assert set(SCHEMAS) == {
        "PublishRequest",
        "PublishedInfo",
        "RollbackRequest",
        "PollRequest",
        "PollResponse",
    }
    one = fastavro.parse_schema(json.loads(json.dumps(SCHEMAS["PublishRequest"])))
    assert one["fields"] == PUBLISH["fields"]  # type: ignore[index, call-overload]
    two = fastavro.parse_schema(json.loads(json.dumps(SCHEMAS["PollRequest"])))
    assert two["fields"] == POLL["fields"]  # type: ignore[index, call-overload]
    three = fastavro.parse_schema(json.loads(json.dumps(SCHEMAS["PollResponse"])))
    assert three["items"]["fields"] == ANSWER["items"]["fields"]  # type: ignore[index, call-overload]


# --- The agent without Avro ---


@pytest.mark.process
def test_fastavro_is_imported_on_first_use() -> None:
    code = (
        "import sys, oplogd.server, oplogd.topics.codec.avro as avro\n"
        "from oplogd.decode.pieces import at_once\n"
        "codec = avro.AvroCodec()\n"
        "print('fastavro' in sys.modules)\n"
        "list(at_once(codec.decode_publish(bytes([2, 2, 0, 0]), None)).given)\n"
        "print('fastavro' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "True"]
