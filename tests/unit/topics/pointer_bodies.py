"""Bodies of requests under a pointer, in JSON and in Avro."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest

from oplogd.decode.pieces import Pieces, at_once
from oplogd.errors import MessageError, OplogError
from oplogd.model.transaction import Isolation
from oplogd.topics.codec.avro import SCHEMAS, AvroCodec
from oplogd.topics.codec.codec import Codec, Most, PublishRequest, Rollback, checking
from oplogd.topics.codec.json_codec import JsonCodec

JSON, AVRO = JsonCodec(), AvroCodec()
BOTH = pytest.mark.parametrize("codec", [JSON, AVRO], ids=["json", "avro"])
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
# As a Tephra server makes them: ms since 1970, times a million.
TEPHRA = 1_732_000_000_123 * 1_000_000
MANY = Most(1_000_000, OplogError)
EVERYTHING = Rollback(7, None)

# A client's own copies of the schemas.
PUBLISH = {
    "type": "record",
    "name": "PublishRequest",
    "fields": [
        {"name": "transactionWritePointer", "type": ["long", "null"]},
        {"name": "messages", "type": {"type": "array", "items": "bytes"}},
    ],
}
INFO = {
    "type": "record",
    "name": "MessageInfo",
    "fields": [
        {"name": "publishTimestamp", "type": "long"},
        {"name": "sequenceId", "type": "int"},
    ],
}
PUBLISHED = {
    "type": "record",
    "name": "PublishedInfo",
    "fields": [
        {"name": "transactionWritePointer", "type": ["long", "null"]},
        {"name": "messages", "type": {"type": "array", "items": INFO}},
    ],
}
POLL = SCHEMAS["PollRequest"]


def written(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


def finished(pieces: Pieces[Any]) -> tuple[Any, int]:
    """Return the result of work on a body, and the number of its pieces."""
    count = 0
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value, count
        count += 1


def rollback(codec: Codec, body: bytes) -> Rollback:
    result: Rollback = finished(codec.decode_rollback(body))[0]
    return result


def refused(codec: Codec, body: bytes) -> str:
    with pytest.raises(MessageError) as caught:
        rollback(codec, body)
    return str(caught.value)


def body_of(codec: Codec, pointer: Any, payloads: Sequence[str] | None) -> bytes:
    """Return the body of a publish."""
    if codec is JSON:
        members = {"transactionWritePointer": pointer, "messages": payloads}
        return json.dumps(members).encode()
    messages = [each.encode() for each in payloads or ()]
    return written(PUBLISH, {"transactionWritePointer": pointer, "messages": messages})


def payloads_of(codec: Codec, request: PublishRequest) -> list[str]:
    assert request.given is not None
    messages = at_once(
        checking(request.given, lambda each: codec.message(each, None), "messages", MANY)
    )
    return [json.loads(each.data)["payload"] for each in messages]


def publish(codec: Codec, body: bytes) -> PublishRequest:
    return at_once(codec.decode_publish(body, MANY))
