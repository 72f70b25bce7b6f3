"""Avro bodies that fastavro writes, as an independent client, and their decoding."""

import io
from typing import Any

import fastavro
import pytest

from oplogd.decode.pieces import at_once
from oplogd.errors import MessageError
from oplogd.model.message import Message
from oplogd.topics.codec.avro import AvroCodec
from oplogd.topics.codec.codec import reading_publish
from tests.kits.topics.messages import decode_poll

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
    """Return what a plain publish stores, decoded in as many pieces as it takes."""
    work = reading_publish(CODEC, body, lambda each: CODEC.message(each, ttl), most)
    pointer, messages = at_once(work)
    if pointer is not None:
        raise MessageError("transactionWritePointer", "must be null")
    return messages


def refused(body: bytes) -> tuple[str, str]:
    with pytest.raises(MessageError) as caught:
        messages_of(body)
    return caught.value.field, caught.value.reason


def refused_poll(body: bytes) -> tuple[str, str]:
    with pytest.raises(MessageError) as caught:
        decode_poll(CODEC, body)
    return caught.value.field, caught.value.reason
