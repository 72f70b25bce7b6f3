"""The bodies of publish and poll in Avro, as bare data without a container. No I/O.

fastavro takes counts and lengths as they are and reads a body in one go. So the bytes of a request
are checked first, and messages are decoded a few at a time.
"""

import io
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from oplogd.errors import MessageError
from oplogd.media_types import AVRO
from oplogd.message import Message, decode_content, of_payload
from oplogd.message_id import MESSAGE_ID_BYTES
from oplogd.topics.avro_bytes import AvroBytes
from oplogd.topics.codec import Polled, PollRequest
from oplogd.topics.json_codec import limit
from oplogd.transaction import Isolation

# Messages that fastavro decodes in one call, below 64: then their count is one byte.
_PIECE_MESSAGES = 63
_OPLOG_ID_BYTES = 12

_PUBLISH = {
    "type": "record",
    "name": "PublishRequest",
    "fields": [
        {"name": "transactionWritePointer", "type": ["long", "null"]},
        {"name": "messages", "type": {"type": "array", "items": "bytes"}},
    ],
}
_POLL = {
    "type": "record",
    "name": "PollRequest",
    "fields": [
        {"name": "startFrom", "type": ["bytes", "long", "null"]},
        {"name": "inclusive", "type": "boolean"},
        {"name": "limit", "type": ["int", "null"]},
        {"name": "transaction", "type": ["bytes", "null"]},
    ],
}
_MESSAGE = {
    "type": "record",
    "name": "Message",
    "fields": [{"name": "id", "type": "bytes"}, {"name": "payload", "type": "bytes"}],
}
_ANSWER = {"type": "array", "items": _MESSAGE}
# The published schemas by name.
SCHEMAS: dict[str, dict[str, Any]] = {
    "PublishRequest": _PUBLISH,
    "PollRequest": _POLL,
    "PollResponse": _ANSWER,
}


class AvroCodec:
    """Implements ``Codec``. Given messages are their payloads."""

    media_type = AVRO

    def split(self, raw: bytes) -> Iterator[bytes]:
        body = AvroBytes(raw)
        if body.branch("transactionWritePointer", 2) == 0:
            raise MessageError("transactionWritePointer", "must be null")
        total = 0
        while block := body.block("messages"):
            first, total = total, total + block.items
            for index in range(first, total, _PIECE_MESSAGES):
                start, end = body.at, min(index + _PIECE_MESSAGES, total)
                for each in range(index, end):
                    body.skip_bytes(f"messages[{each}]")
                # An array of this piece alone: its count, its messages, no further block.
                array = b"%c%b\0" % ((end - index) * 2, raw[start : body.at])
                yield from _library().decode_messages(array)
            body.end_block(block, "messages")
        body.end()

    def message(self, given: bytes, ttl: int | None) -> Message:
        return of_payload(given, ttl)

    def operation(self, given: bytes) -> bytes:
        return given

    def decode_poll(
        self, raw: bytes, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> PollRequest:
        body = AvroBytes(raw)
        start = body.branch("startFrom", 3)
        if start == 0:
            body.skip_bytes("startFrom")
        elif start == 1:
            body.number("startFrom")
        body.skip_boolean("inclusive")
        if body.branch("limit", 2) == 0:
            body.number("limit")
        if body.branch("transaction", 2) == 0:
            raise MessageError("transaction", "must be null")
        body.end()
        poll = _library().decode_poll(raw)
        position, most = _start(poll["startFrom"]), limit(poll["limit"])
        return PollRequest(position, poll["inclusive"], most, isolation)

    def encode(self, messages: Sequence[Polled]) -> bytes:
        return _library().encode_answer(
            [
                {"id": bytes.fromhex(id_), "payload": decode_content(data).raw() or b""}
                for id_, data in messages
            ]
        )


class _Library:
    """Calls fastavro with the schemas. Its import takes 10 MB, so it waits for the first use."""

    def __init__(self) -> None:
        import fastavro

        self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer
        self._messages = fastavro.parse_schema({"type": "array", "items": "bytes"})
        self._poll = fastavro.parse_schema(_POLL)
        self._answer = fastavro.parse_schema(_ANSWER)

    def decode_messages(self, array: bytes) -> list[bytes]:
        messages: Any = self._read(io.BytesIO(array), self._messages, None)
        return list(messages)

    def decode_poll(self, raw: bytes) -> dict[str, Any]:
        poll: Any = self._read(io.BytesIO(raw), self._poll, None)
        return dict(poll)

    def encode_answer(self, answer: list[dict[str, bytes]]) -> bytes:
        out = io.BytesIO()
        self._write(out, self._answer, answer)
        return out.getvalue()


_library = cache(_Library)


def _start(given: bytes | int | None) -> bytes | int | None:
    if isinstance(given, bytes) and len(given) not in (MESSAGE_ID_BYTES, _OPLOG_ID_BYTES):
        raise MessageError("startFrom", f"an id has {MESSAGE_ID_BYTES} bytes, not {len(given)}")
    if isinstance(given, int) and given < 0:
        raise MessageError("startFrom", "must not be negative")
    return given
