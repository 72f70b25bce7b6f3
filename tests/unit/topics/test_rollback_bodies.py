"""The answer to a publish under a pointer, and the body of a rollback."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import MessageError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MAX_SEQUENCE, stamp
from oplogd.model.pointer import MAX_POINTER
from oplogd.topics.codec.avro import SCHEMAS
from oplogd.topics.codec.avro_bytes import AvroBytes
from oplogd.topics.codec.codec import MAX_KEYS, Codec, Rollback
from tests.kits.models.properties import examples
from tests.unit.topics.pointer_bodies import (
    AVRO,
    BOTH,
    EVERYTHING,
    JSON,
    PUBLISHED,
    TEPHRA,
    finished,
    refused,
    rollback,
    written,
)

MARKS = [Mark(5, 1_700_000_000_000, 0), Mark(9, 1_700_000_000_001, MAX_SEQUENCE)]
STAMPS = [stamp(each.ms, each.sequence) for each in MARKS]


def test_the_text_of_an_answer_to_a_publish_is_this() -> None:
    assert b"".join(JSON.encode_published(7, MARKS)) == (
        b'{"transactionWritePointer":7,"messages":['
        b'{"publishTimestamp":1700000000000,"sequenceId":0},'
        b'{"publishTimestamp":1700000000001,"sequenceId":65535}]}'
    )


def test_the_bytes_of_an_answer_to_a_publish_are_these() -> None:
    answer = b"".join(AVRO.encode_published(7, MARKS))
    # Branch 0 and 7; two items; 1700000000000 and 0; 1700000000001 and 65535; no more items.
    assert answer == bytes.fromhex("000e0480a0abfef9620082a0abfef962feff0700")
    assert rollback(AVRO, answer) == Rollback(7, STAMPS)
    assert rollback(AVRO, bytes.fromhex("000e00")) == EVERYTHING


def test_a_long_answer_is_encoded_in_parts_and_others_can_read_it() -> None:
    marks = [Mark(n, 1_700_000_000_000 + n, n % 10) for n in range(2500)]
    infos = [{"publishTimestamp": ms, "sequenceId": sequence} for _, ms, sequence in marks]
    expected = {"transactionWritePointer": 7, "messages": infos}
    parts = [*JSON.encode_published(7, marks)]
    assert [part.count(b"{") for part in parts] == [1001, 1000, 500, 0]
    assert json.loads(b"".join(parts)) == expected
    parts = [*AVRO.encode_published(7, marks)]
    assert len(parts) == 5
    schema = fastavro.parse_schema(PUBLISHED)
    assert fastavro.schemaless_reader(io.BytesIO(b"".join(parts)), schema, None) == expected


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
        answer = b"".join(codec.encode_published(pointer, places))
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


def by_keys(pointer: int, keys: list[bytes]) -> bytes:
    out = io.BytesIO()
    request = {"transactionWritePointer": pointer, "rollbackKeys": keys}
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS["RollbackRequest"]), request)
    return out.getvalue()


@examples()
@given(st.integers(2, MAX_POINTER), st.lists(marks, max_size=70))
@example(TEPHRA, MARKS)
@example(2, [])
def test_avro_takes_keys_as_cdap_describes_them(pointer: int, places: list[Mark]) -> None:
    stamps = [stamp(each.ms, each.sequence) for each in places]
    keys = [each.to_bytes(10) for each in stamps]
    assert rollback(AVRO, by_keys(pointer, keys)) == Rollback(pointer, stamps or None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (by_keys(7, [bytes(10), bytes(9)]),
         "rollbackKeys[1]: must be 10 bytes: 8 of the time and 2 of the sequence"),
        (by_keys(7, [bytes(60_000)]),
         "rollbackKeys[0]: must be 10 bytes: 8 of the time and 2 of the sequence"),
        (by_keys(7, [bytes(10)])[:-1], "rollbackKeys: the Avro body ends here"),
        (by_keys(7, [bytes(10)])[:-2], "rollbackKeys[0]: announces 10 bytes, but 9 follow"),
        (by_keys(7, []) + b"x", "body: has bytes after the end of its Avro: 1"),
        (by_keys(MAX_POINTER + 1, []),
         f"transactionWritePointer: must be a whole number from 0 to {MAX_POINTER} (2^62 - 1)"),
    ],
)  # fmt: skip
def test_a_damaged_rollback_by_keys_names_the_part_at_fault(body: bytes, said: str) -> None:
    assert refused(AVRO, body) == said


@BOTH
def test_a_time_that_no_entry_has_stays_a_key_that_stores_can_compare(codec: Codec) -> None:
    """Without it the list could be empty, and that means everything."""
    answer = b"".join(codec.encode_published(7, [Mark(1, 2**63 - 1, 5)]))
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
        (b"\x04", "rollbackKeys: the Avro body ends here"),
        (b"\x01\0", "transactionWritePointer: is not Avro: its union has no branch -1"),
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
@given(
    st.binary(min_size=1, max_size=30)
    | st.tuples(st.just(b"\0\x0e"), st.binary(max_size=30)).map(b"".join)
)
def test_any_bytes_are_a_rollback_or_one_error(body: bytes) -> None:
    try:
        pointer, stamps = rollback(AVRO, body)
    except MessageError:
        return
    has_keys = AvroBytes(body).number("") > 1
    schema = fastavro.parse_schema(SCHEMAS["RollbackRequest"] if has_keys else PUBLISHED)
    read: Any = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
    assert read["transactionWritePointer"] == pointer
    most = stamp(2**47 - 1, MAX_SEQUENCE)
    if has_keys:
        given = [min(int.from_bytes(key), most) for key in read["rollbackKeys"]]
    else:
        given = [min(stamp(*each.values()), most) for each in read["messages"]]
    assert given == (stamps or [])


def keys_of(codec: Codec, count: int) -> list[bytes]:
    """Return bodies of rollbacks with this many keys."""
    bodies = [b"".join(codec.encode_published(7, [Mark(1, 1, 1)] * count))]
    if codec is AVRO:
        bodies.append(by_keys(7, [bytes(10)] * count))
    else:
        keys = ",".join([KEY] * count)
        bodies.append(f'{{"transactionWritePointer":7,"rollbackKeys":[{keys}]}}'.encode())
    return bodies


@BOTH
def test_a_rollback_has_at_most_100_000_keys(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_KEYS == 100_000
    most = 10_000
    monkeypatch.setattr("oplogd.decode.walk.MANY_COMMAS", most // 2)
    for module in ("codec", "json_codec"):
        monkeypatch.setattr(f"oplogd.topics.codec.{module}.MAX_KEYS", most)
    for body in keys_of(codec, most):
        (_, stamps), pieces = finished(codec.decode_rollback(body))
        # A long body in JSON is cut into its keys first, in pieces of its own.
        assert (len(stamps), pieces) == (most, 313 if codec is JSON else 156)
    for name, body in zip(("messages", "rollbackKeys"), keys_of(codec, most + 1), strict=False):
        assert refused(codec, body) == f"{name}: are more than 10,000; send fewer at a time"
