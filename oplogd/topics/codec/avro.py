"""The bodies of publish and poll in Avro, as bare data without a container. No I/O.

fastavro trusts counts and lengths. So the bytes of a request are checked first, and messages are
decoded a few at a time.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.media_types import AVRO
from oplogd.decode.pieces import Pieces
from oplogd.errors import MessageError
from oplogd.model.event_id import Mark
from oplogd.model.message import MAX_MESSAGE_BYTES, Message, decode_content, of_payload
from oplogd.model.message_id import MESSAGE_ID_BYTES
from oplogd.model.pointer import KEY_BYTES, parse_pointer
from oplogd.model.transaction import Isolation
from oplogd.topics.codec.avro_bytes import ArrayBlock, AvroBytes
from oplogd.topics.codec.codec import (
    Most,
    PollMessage,
    PollRequest,
    PublishRequest,
    Rollback,
    by_parts,
    isolation_with,
    rolling_back,
    stamp_of_info,
)
from oplogd.topics.codec.json_codec import limit, reading_snapshot

# Messages and bytes decoded in one call. Below 64 messages, their count is one byte.
_PIECE_MESSAGES = 63
_PIECE_BYTES = 64 * 1024
_OPLOG_ID_BYTES = 12
# Behind the blocks of an array.
_END = b"\0"


def _record(name: str, **fields: Any) -> dict[str, Any]:
    members = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": members}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_PAYLOADS = _array("bytes")
_PUBLISH = _record("PublishRequest", transactionWritePointer=["long", "null"], messages=_PAYLOADS)
_INFOS = _array(_record("MessageInfo", publishTimestamp="long", sequenceId="int"))
_PUBLISHED = _record("PublishedInfo", transactionWritePointer=["long", "null"], messages=_INFOS)
# A rollback by keys, as CDAP's documents describe it. A published answer is a rollback, too: it
# begins with the branch of a union, 0 or 1, so pointers 0 and 1 have no rollback by keys.
_ROLLBACK = _record("RollbackRequest", transactionWritePointer="long", rollbackKeys=_array("bytes"))
_POLL = _record(
    "PollRequest",
    startFrom=["bytes", "long", "null"],
    inclusive="boolean",
    limit=["int", "null"],
    transaction=["bytes", "null"],
)
_ANSWER = _array(_record("Message", id="bytes", payload="bytes"))
# The published schemas by name.
SCHEMAS: dict[str, dict[str, Any]] = {
    "PublishRequest": _PUBLISH,
    "PublishedInfo": _PUBLISHED,
    "RollbackRequest": _ROLLBACK,
    "PollRequest": _POLL,
    "PollResponse": _ANSWER,
}


class AvroCodec:
    """Implements ``Codec``. Given messages are their payloads."""

    media_type = AVRO

    def decode_publish(self, raw: Buffer, most: Most) -> Pieces[PublishRequest]:
        yield from ()
        body = AvroBytes(raw)
        pointer = _pointer(body)
        block = body.block("messages")
        if block is None and pointer is not None:
            body.end()
            return PublishRequest(pointer, None)
        return PublishRequest(pointer, _payloads(raw, body, block))

    def decode_rollback(self, raw: Buffer) -> Pieces[Rollback]:
        body = AvroBytes(raw)
        if (first := body.number("transactionWritePointer")) > 1:
            return rolling_back(parse_pointer(first), _keys(raw, body), _key, "rollbackKeys")
        body = AvroBytes(raw)
        pointer = _pointer(body)
        if pointer is None:
            raise MessageError("transactionWritePointer", "must not be null")
        return rolling_back(pointer, _infos(body), _stamp, "messages")

    def encode_published(self, pointer: int, marks: Iterable[Mark]) -> Iterator[bytes]:
        library = _library()
        answer = {"transactionWritePointer": pointer, "messages": []}
        yield library.encode(library.published, answer).removesuffix(_END)
        for some in by_parts(marks):
            infos = [{"publishTimestamp": ms, "sequenceId": sequence} for _, ms, sequence in some]
            yield library.encode(library.infos, infos).removesuffix(_END)
        yield _END

    def message(self, given: bytes | memoryview, ttl: int | None) -> Message:
        return of_payload(given, ttl)

    def operation(self, given: bytes | memoryview) -> Text:
        return given

    def decoding_poll(self, raw: Buffer, isolation: Isolation | None = None) -> Pieces[PollRequest]:
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
            body.skip_bytes("transaction")
        body.end()
        poll = _library().decode(_library().poll, raw)
        position, most = _start(poll["startFrom"]), limit(poll["limit"])
        text = poll["transaction"]
        given = None if text is None else (yield from reading_snapshot(text))
        isolation = isolation_with(given, isolation)
        return PollRequest(position, poll["inclusive"], most, isolation, given)

    def encode(self, messages: Sequence[PollMessage]) -> bytes:
        answer = [
            {"id": bytes.fromhex(id_), "payload": decode_content(data).raw() or b""}
            for id_, data in messages
        ]
        return _library().encode(_library().answer, answer)


class _Library:
    """Calls fastavro with parsed schemas. Its import takes 10 MB, so it waits for the first use."""

    def __init__(self) -> None:
        import fastavro

        self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer
        self._payloads = fastavro.parse_schema(_PAYLOADS)
        self.published = fastavro.parse_schema(_PUBLISHED)
        self.infos = fastavro.parse_schema(_INFOS)
        self.poll = fastavro.parse_schema(_POLL)
        self.answer = fastavro.parse_schema(_ANSWER)

    def decode_items(self, items: Buffer, count: int) -> list[bytes]:
        """Decode so many messages, at most _PIECE_MESSAGES."""
        if not count:
            return []
        # An array of these alone: its count, its messages, no further block.
        return list(self.decode(self._payloads, bytes([count * 2]) + items + _END))

    def decode(self, schema: Any, raw: Buffer) -> Any:
        return self._read(io.BytesIO(raw), schema, None)

    def encode(self, schema: Any, datum: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, schema, datum)
        return out.getvalue()


_library = cache(_Library)


def _pointer(body: AvroBytes) -> int | None:
    if body.branch("transactionWritePointer", 2) == 1:
        return None
    return parse_pointer(body.number("transactionWritePointer"))


def _payloads(
    raw: Buffer, body: AvroBytes, block: ArrayBlock | None
) -> Iterator[bytes | memoryview]:
    """Yield the messages of a publish, too large ones without a copy. ``block``: the first one."""
    total = 0
    while block:
        first, total = total, total + block.items
        start, items = body.at, 0
        for index in range(first, total):
            before = body.at
            size = body.skip_bytes(f"messages[{index}]")
            if size > MAX_MESSAGE_BYTES:
                yield from _library().decode_items(raw[start:before], items)
                yield memoryview(raw)[body.at - size : body.at]
                start, items = body.at, 0
                continue
            items += 1
            if items == _PIECE_MESSAGES or body.at - start >= _PIECE_BYTES:
                yield from _library().decode_items(raw[start : body.at], items)
                start, items = body.at, 0
        yield from _library().decode_items(raw[start : body.at], items)
        body.end_block(block, "messages")
        block = body.block("messages")
    body.end()


def _keys(raw: Buffer, body: AvroBytes) -> Iterator[bytes]:
    """Yield each key of a rollback: no more bytes than one has and another."""
    for place in body.items("rollbackKeys"):
        size = body.skip_bytes(place)
        yield bytes(raw[body.at - min(size, KEY_BYTES + 1) : body.at])


def _key(given: bytes, place: str) -> int:
    if len(given) != KEY_BYTES:
        raise MessageError(place, f"must be {KEY_BYTES} bytes: 8 of the time and 2 of the sequence")
    return int.from_bytes(given)


def _infos(body: AvroBytes) -> Iterator[tuple[int, int]]:
    """Yield time and sequence of each item of an answer to a publish."""
    for place in body.items("messages"):
        ms = body.number(f"{place}.publishTimestamp")
        yield ms, body.number(f"{place}.sequenceId")


def _stamp(info: tuple[int, int], place: str) -> int:
    return stamp_of_info(*info, place)


def _start(given: bytes | int | None) -> bytes | int | None:
    if isinstance(given, bytes) and len(given) not in (MESSAGE_ID_BYTES, _OPLOG_ID_BYTES):
        raise MessageError("startFrom", f"an id has {MESSAGE_ID_BYTES} bytes, not {len(given)}")
    if isinstance(given, int) and given < 0:
        raise MessageError("startFrom", "must not be negative")
    return given
