"""Bodies of requests under a pointer, in JSON and in Avro."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import MessageError
from oplogd.event_id import Mark
from oplogd.ingest.body import Pieces
from oplogd.message_id import MAX_SEQUENCE, stamp
from oplogd.pointer import MAX_POINTER, MAX_SNAPSHOT_POINTERS, Snapshot
from oplogd.topics.avro import SCHEMAS, AvroCodec
from oplogd.topics.codec import MAX_KEYS, Codec, PublishRequest, Rollback, publishing
from oplogd.topics.json_codec import JsonCodec
from oplogd.transaction import Isolation
from tests.kits.models.properties import examples

JSON, AVRO = JsonCodec(), AvroCodec()
BOTH = pytest.mark.parametrize("codec", [JSON, AVRO], ids=["json", "avro"])
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
# As a Tephra server makes them: ms since 1970, times a million.
TEPHRA = 1_732_000_000_123 * 1_000_000
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
    pieces = publishing(request.given, lambda each: codec.message(each, None), 1_000_000)
    return [json.loads(each.data)["payload"] for each in finished(pieces)[0]]


# --- Publish and store ---


@BOTH
@pytest.mark.parametrize("pointer", [0, 7, TEPHRA, MAX_POINTER])
def test_a_publish_has_its_pointer_and_its_messages(codec: Codec, pointer: int) -> None:
    request = codec.decode_publish(body_of(codec, pointer, ["a", "é"]))
    assert (request.pointer, payloads_of(codec, request)) == (pointer, ["a", "é"])


@BOTH
def test_a_publish_without_a_pointer_is_plain(codec: Codec) -> None:
    request = codec.decode_publish(body_of(codec, None, ["a"]))
    assert (request.pointer, payloads_of(codec, request)) == (None, ["a"])


@BOTH
def test_messages_may_be_absent_under_a_pointer_alone(codec: Codec) -> None:
    assert codec.decode_publish(body_of(codec, 7, [])) == (7, None)
    request = codec.decode_publish(body_of(codec, None, []))
    with pytest.raises(MessageError, match=r"^messages: there is none$"):
        payloads_of(codec, request)


@pytest.mark.parametrize(
    "body",
    [
        '{"transactionWritePointer": "7"}',
        '{"transactionWritePointer": 7, "messages": null}',
        '{"messages": [ ], "transactionWritePointer": \n 7 }',
    ],
)
def test_a_pointer_may_be_a_string_and_messages_may_be_null(body: str) -> None:
    assert JSON.decode_publish(body.encode()) == (7, None)


WHOLE = f"must be a whole number from 0 to {MAX_POINTER} (2^62 - 1)"


@pytest.mark.parametrize(
    ("pointer", "reason"),
    [
        ("-1", WHOLE),
        (str(MAX_POINTER + 1), WHOLE),
        (f'"{MAX_POINTER + 1}"', WHOLE),
        ("1.5", WHOLE),
        ("7.0", WHOLE),
        ("true", WHOLE),
        ('""', WHOLE),
        ('"07"', WHOLE),
        ('"\u0667"', WHOLE),
        ("[]", WHOLE),
        ("9" * 500, WHOLE),
        ("1e400", "has a number that is out of range"),
        ("[" + "[]," * 400 + "[]]", "has 1,204 bytes, more than 1,000"),
    ],
)
def test_a_bad_pointer_is_named_in_every_body(pointer: str, reason: str) -> None:
    body = f'{{"transactionWritePointer": {pointer}, "messages": ["a"]}}'.encode()
    for decode in (JSON.split, JSON.decode_publish, JSON.decode_rollback):
        with pytest.raises(MessageError) as caught:
            decode(body)
        assert str(caught.value) == f"transactionWritePointer: {reason}"


@pytest.mark.parametrize("pointer", [-1, MAX_POINTER + 1, -(2**63), 2**63 - 1])
def test_a_bad_pointer_is_named_in_avro(pointer: int) -> None:
    body = body_of(AVRO, pointer, ["a"])
    for decode in (AVRO.split, AVRO.decode_publish, AVRO.decode_rollback):
        with pytest.raises(MessageError) as caught:
            decode(body)
        assert str(caught.value) == f"transactionWritePointer: {WHOLE}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"transactionWritePointer": 7, "messages": {}}', "messages: must be a list"),
        (b'{"transactionWritePointer": 7, "keys": []}',
         "keys: is not a member of this request"),
        (b'{"transactionWritePointer": 7, "messages": [1,}',
         "body: is not valid JSON: invalid character (byte 46)"),
    ],
)  # fmt: skip
def test_a_bad_publish_under_a_pointer_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        JSON.decode_publish(body)
    assert str(caught.value) == said


@BOTH
def test_a_plain_publish_alone_can_be_split(codec: Codec) -> None:
    for messages in (["a"], []):
        with pytest.raises(MessageError, match=r"^transactionWritePointer: must be null$"):
            codec.split(body_of(codec, 7, messages))


def test_bytes_after_a_publish_of_what_is_stored_are_refused() -> None:
    with pytest.raises(MessageError, match=r"^body: has bytes after the end of its Avro: 1$"):
        AVRO.decode_publish(body_of(AVRO, 7, []) + b"\0")


# --- The answer to a publish, and rollback ---


MARKS = [Mark(5, 1_700_000_000_000, 0), Mark(9, 1_700_000_000_001, MAX_SEQUENCE)]
STAMPS = [stamp(each.ms, each.sequence) for each in MARKS]


def test_the_text_of_an_answer_to_a_publish_is_this() -> None:
    assert JSON.encode_published(7, MARKS) == (
        b'{"transactionWritePointer":7,"messages":['
        b'{"publishTimestamp":1700000000000,"sequenceId":0},'
        b'{"publishTimestamp":1700000000001,"sequenceId":65535}]}'
    )


def test_the_bytes_of_an_answer_to_a_publish_are_these() -> None:
    answer = AVRO.encode_published(7, MARKS)
    # Branch 0 and 7; two items; 1700000000000 and 0; 1700000000001 and 65535; no more items.
    assert answer == bytes.fromhex("000e0480a0abfef9620082a0abfef962feff0700")
    assert rollback(AVRO, answer) == Rollback(7, STAMPS)
    assert rollback(AVRO, bytes.fromhex("000e00")) == EVERYTHING


def test_the_published_schema_is_that_of_the_answer() -> None:
    assert json.loads(json.dumps(SCHEMAS["PublishedInfo"])) == PUBLISHED


marks = st.builds(
    Mark, st.integers(0, 2**40), st.integers(0, 2**47 - 1), st.integers(0, MAX_SEQUENCE)
)


@BOTH
def test_an_answer_to_a_publish_is_its_rollback(codec: Codec) -> None:
    @examples()
    @given(st.integers(0, MAX_POINTER), st.lists(marks, min_size=1, max_size=70))
    def compare(pointer: int, places: list[Mark]) -> None:
        answer = codec.encode_published(pointer, places)
        stamps = [stamp(each.ms, each.sequence) for each in places]
        assert rollback(codec, answer) == Rollback(pointer, stamps)

    compare()


@examples()
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2**47), st.integers(0, 9)), min_size=1), max_size=5),
    st.booleans(),
)
def test_several_blocks_of_an_answer_are_read_like_one(
    blocks: list[list[tuple[int, int]]], sized: bool
) -> None:
    body = written(["long", "null"], 7)
    for block in blocks:
        items = b"".join(written("long", ms) + written("int", seq) for ms, seq in block)
        count = written("long", -len(block) if sized else len(block))
        body += count + (written("long", len(items)) if sized else b"") + items
    keys = [min(stamp(*each), stamp(2**47 - 1, MAX_SEQUENCE)) for block in blocks for each in block]
    assert rollback(AVRO, body + b"\0") == Rollback(7, keys or None)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"messages": None},
        {"messages": []},
        {"rollbackKeys": []},
        {"rollbackKeys": None, "messages": None},
    ],
)
def test_a_rollback_without_keys_is_one_of_everything(members: dict[str, Any]) -> None:
    body = json.dumps({"transactionWritePointer": "7", **members}).encode()
    assert rollback(JSON, body) == EVERYTHING


def test_keys_are_times_and_sequences() -> None:
    keys = [f"{each.ms:016x}{each.sequence:04x}" for each in MARKS]
    body = json.dumps({"transactionWritePointer": TEPHRA, "rollbackKeys": keys}).encode()
    assert rollback(JSON, body) == Rollback(TEPHRA, STAMPS)


@BOTH
def test_a_time_that_no_entry_has_stays_a_key_that_stores_can_compare(codec: Codec) -> None:
    """Without it the list could be empty, and that means everything."""
    answer = codec.encode_published(7, [Mark(1, 2**63 - 1, 5)])
    assert rollback(codec, answer) == Rollback(7, [stamp(2**47 - 1, MAX_SEQUENCE)])
    keys = json.dumps({"transactionWritePointer": 7, "rollbackKeys": ["f" * 20]})
    assert rollback(JSON, keys.encode()) == Rollback(7, [stamp(2**47 - 1, MAX_SEQUENCE)])


DIGITS = "must be 20 lower-case hexadecimal digits: 16 of the time and 4 of the sequence"
KEY = '"0000018bcfe568000000"'
ITEM = '{"publishTimestamp": 1, "sequenceId": 0}'
LONG = f"must be a whole number from 0 to {2**63 - 1}"
SEQUENCE = "must be a whole number from 0 to 65535"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ('"messages": {}', "messages: must be a list"),
        ('"messages": 5', "messages: must be a list"),
        ('"rollbackKeys": "x"', "rollbackKeys: must be a list"),
        ('"messages": [], "rollbackKeys": []',
         "rollbackKeys: must be absent if there are messages"),
        (f'"messages": [{ITEM}], "rollbackKeys": [{KEY}]',
         "rollbackKeys: must be absent if there are messages"),
        (f'"rollbackKeys": [{KEY}, {KEY}, {KEY}, "x"]', f"rollbackKeys[3]: {DIGITS}"),
        (f'"rollbackKeys": [{KEY}, 5]', f"rollbackKeys[1]: {DIGITS}"),
        (f'"rollbackKeys": ["{"A" * 20}"]', f"rollbackKeys[0]: {DIGITS}"),
        (f'"rollbackKeys": ["{"a" * 2000}"]',
         "rollbackKeys[0]: has 2,002 bytes, more than 1,000"),
        ('"rollbackKeys": ["\xff"]', "rollbackKeys[0]: is not UTF-8 (byte 0)"),
        (f'"messages": [{ITEM}, {ITEM}, {{"sequenceId": 0}}]',
         f"messages[2].publishTimestamp: {LONG}"),
        ('"messages": [{"publishTimestamp": "1", "sequenceId": 0}]',
         f"messages[0].publishTimestamp: {LONG}"),
        ('"messages": [{"publishTimestamp": -1, "sequenceId": 0}]',
         f"messages[0].publishTimestamp: {LONG}"),
        ('"messages": [{"publishTimestamp": 9223372036854775808, "sequenceId": 0}]',
         f"messages[0].publishTimestamp: {LONG}"),
        ('"messages": [{"publishTimestamp": 1.5, "sequenceId": 0}]',
         f"messages[0].publishTimestamp: {LONG}"),
        ('"messages": [{"publishTimestamp": 1}]', f"messages[0].sequenceId: {SEQUENCE}"),
        ('"messages": [{"publishTimestamp": 1, "sequenceId": 65536}]',
         f"messages[0].sequenceId: {SEQUENCE}"),
        ('"messages": [{"publishTimestamp": 1, "sequenceId": true}]',
         f"messages[0].sequenceId: {SEQUENCE}"),
        ('"messages": [{"publishTimestamp": 1, "sequenceId": 1, "x": 1}]',
         "messages[0].x: is not a member of this request"),
        ('"messages": [5]', "messages[0]: must be an object"),
        (f'"messages": [{{"publishTimestamp": {" " * 1000}1, "sequenceId": 1}}]',
         "messages[0]: has 1,040 bytes, more than 1,000"),
        ('"keys": []', "keys: is not a member of this request"),
    ],
)  # fmt: skip
def test_a_bad_rollback_names_its_member(members: str, said: str) -> None:
    body = f'{{"transactionWritePointer": 7, {members}}}'.encode("latin-1")
    assert refused(JSON, body) == said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "transactionWritePointer: the Avro body ends here"),
        (b"\x02\0", "transactionWritePointer: must not be null"),
        (b"\x04\0", "transactionWritePointer: is not Avro: its union has no branch 2"),
        (b"\0\x0e", "messages: the Avro body ends here"),
        (b"\0\x0e\x02\x02", "messages[0].sequenceId: the Avro body ends here"),
        (b"\0\x0e\x02\x02\0", "messages: the Avro body ends here"),
        (b"\0\x0e\x02\x01\0\0", f"messages[0].publishTimestamp: {LONG}"),
        (b"\0\x0e\x04\x02\0\x02\x01\0", f"messages[1].sequenceId: {SEQUENCE}"),
        (b"\0\x0e\x01\x06\x02\0\0",
         "messages: is not Avro: a block has another size than announced"),
        (b"\0\x0e\x00\x00", "body: has bytes after the end of its Avro: 1"),
        (b"\0\x0e" + written("long", 2**40) + bytes(9),
         "messages: announces 1,099,511,627,776 items, but 9 bytes follow"),
    ],
)  # fmt: skip
def test_a_damaged_rollback_names_the_part_at_fault(body: bytes, said: str) -> None:
    assert refused(AVRO, body) == said


@examples()
@given(st.binary(max_size=30) | st.tuples(st.just(b"\0\x0e"), st.binary(max_size=30)).map(b"".join))
def test_any_bytes_are_a_rollback_or_one_error(body: bytes) -> None:
    try:
        pointer, stamps = rollback(AVRO, body)
    except MessageError:
        return
    read: Any = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(PUBLISHED), None)
    assert read["transactionWritePointer"] == pointer
    most = stamp(2**47 - 1, MAX_SEQUENCE)
    given = [min(stamp(*each.values()), most) for each in read["messages"]]
    assert given == (stamps or [])


def keys_of(codec: Codec, count: int) -> list[bytes]:
    """Return bodies of rollbacks with this many keys."""
    bodies = [codec.encode_published(7, [Mark(1, 1, 1)] * count)]
    if codec is JSON:
        keys = ",".join([KEY] * count)
        bodies.append(f'{{"transactionWritePointer":7,"rollbackKeys":[{keys}]}}'.encode())
    return bodies


@BOTH
def test_a_rollback_has_at_most_100_000_keys(codec: Codec) -> None:
    assert MAX_KEYS == 100_000
    for body in keys_of(codec, MAX_KEYS):
        (_, stamps), pieces = finished(codec.decode_rollback(body))
        assert (len(stamps), pieces) == (MAX_KEYS, 1562), "other requests run between the pieces"
    for name, body in zip(("messages", "rollbackKeys"), keys_of(codec, MAX_KEYS + 1), strict=False):
        assert refused(codec, body) == f"{name}: are more than 100,000; send fewer at a time"


# --- The snapshot of a poll ---


SNAPSHOT = {"readPointer": str(TEPHRA), "writePointer": 9, "inProgress": [3, "5"], "invalid": [4]}
READ = Snapshot(TEPHRA, 9, frozenset({3, 5}), frozenset({4}))


def poll_body(codec: Codec, transaction: Any) -> bytes:
    if codec is JSON:
        return json.dumps({"transaction": transaction}).encode()
    text = None if transaction is None else json.dumps(transaction).encode()
    asked = {"startFrom": None, "inclusive": True, "limit": None, "transaction": text}
    return written(POLL, asked)


@BOTH
def test_a_poll_with_a_snapshot_is_committed(codec: Codec) -> None:
    body = poll_body(codec, SNAPSHOT)
    for isolation in (None, COMMITTED):
        request = codec.decode_poll(body, isolation)
        assert (request.snapshot, request.isolation) == (READ, COMMITTED)
    with pytest.raises(MessageError, match=r"^isolation: must be read_committed with a"):
        codec.decode_poll(body, UNCOMMITTED)
    assert codec.decode_poll(poll_body(codec, None)).snapshot is None


def test_the_isolation_of_a_body_counts_beside_its_snapshot() -> None:
    members: dict[str, Any] = {"transaction": SNAPSHOT, "isolation": COMMITTED}
    assert JSON.decode_poll(json.dumps(members).encode(), UNCOMMITTED).snapshot == READ
    members["isolation"] = UNCOMMITTED
    with pytest.raises(MessageError, match=r"^isolation: must be read_committed with a"):
        JSON.decode_poll(json.dumps(members).encode(), COMMITTED)


def test_the_bytes_of_a_poll_with_a_snapshot_are_these() -> None:
    text = b'{"readPointer":5}'
    request = AVRO.decode_poll(b"\x04\x01\x02\x00\x22" + text)
    assert (request.snapshot, request.isolation) == (Snapshot(5), COMMITTED)


@BOTH
@pytest.mark.parametrize(
    ("transaction", "said"),
    [
        ([], "transaction: must be an object or null"),
        ({}, "transaction.readPointer: is required"),
        ({"readPointer": None}, "transaction.readPointer: must be a whole number of 64 bits"),
        ({"readPointer": 1, "x": 1}, "transaction.x: is not a member of a transaction"),
        ({"readPointer": 1, "invalid": [1, 2, 2**63]},
         "transaction.invalid[2]: must be a whole number of 64 bits"),
        ({"readPointer": 1, "inProgress": [*range(MAX_SNAPSHOT_POINTERS)], "invalid": [1]},
         "transaction: has more than 100,000 pointers in its lists"),
        ({"readPointer": 1, "x": [0] * 2 * MAX_SNAPSHOT_POINTERS},
         "transaction: has more than 100,000 pointers in its lists"),
    ],
)  # fmt: skip
def test_a_bad_snapshot_names_its_member(codec: Codec, transaction: Any, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        codec.decode_poll(poll_body(codec, transaction))
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "transaction: is not valid JSON: Input data was truncated"),
        (b"{", "transaction: is not valid JSON: Input data was truncated"),
        (b"\xff", "transaction: is not valid JSON: invalid character (byte 0)"),
        (b"[" * 100_000, "transaction: is nested too deeply"),
        (b"null", "transaction: must be an object or null"),
    ],
)
def test_a_snapshot_that_is_no_json_is_refused(text: bytes, said: str) -> None:
    asked = {"startFrom": None, "inclusive": True, "limit": None, "transaction": text}
    with pytest.raises(MessageError) as caught:
        AVRO.decode_poll(written(POLL, asked))
    assert str(caught.value) == said


@BOTH
def test_a_snapshot_has_up_to_100_000_pointers(codec: Codec) -> None:
    pointers = [TEPHRA + each for each in range(MAX_SNAPSHOT_POINTERS)]
    given = {
        "readPointer": TEPHRA,
        "writePointer": None,
        "inProgress": pointers[:1000],
        "invalid": [str(each) for each in pointers[1000:]],
    }
    found = codec.decode_poll(poll_body(codec, given)).snapshot
    assert found == Snapshot(TEPHRA, None, frozenset(pointers[:1000]), frozenset(pointers[1000:]))
