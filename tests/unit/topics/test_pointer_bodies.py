"""Bodies of a publish under a pointer, and of a poll with a snapshot."""

import json
from typing import Any

import pytest

from oplogd.errors import MessageError
from oplogd.model.pointer import MAX_POINTER, MAX_SNAPSHOT_POINTERS, Snapshot
from oplogd.topics.codec.codec import Codec
from tests.kits.topics.messages import decode_poll
from tests.unit.topics.pointer_bodies import (
    AVRO,
    BOTH,
    COMMITTED,
    JSON,
    POLL,
    TEPHRA,
    UNCOMMITTED,
    body_of,
    payloads_of,
    publish,
    rollback,
    written,
)

# --- Publish and store ---


@BOTH
@pytest.mark.parametrize("pointer", [0, 7, TEPHRA, MAX_POINTER])
def test_a_publish_has_its_pointer_and_its_messages(codec: Codec, pointer: int) -> None:
    request = publish(codec, body_of(codec, pointer, ["a", "é"]))
    assert (request.pointer, payloads_of(codec, request)) == (pointer, ["a", "é"])


@BOTH
def test_a_publish_without_a_pointer_is_plain(codec: Codec) -> None:
    request = publish(codec, body_of(codec, None, ["a"]))
    assert (request.pointer, payloads_of(codec, request)) == (None, ["a"])


@BOTH
def test_messages_may_be_absent_under_a_pointer_alone(codec: Codec) -> None:
    assert publish(codec, body_of(codec, 7, [])) == (7, None)
    request = publish(codec, body_of(codec, None, []))
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
    assert publish(JSON, body.encode()) == (7, None)


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
    for decode in (publish, rollback):
        with pytest.raises(MessageError) as caught:
            decode(JSON, body)
        assert str(caught.value) == f"transactionWritePointer: {reason}"


@pytest.mark.parametrize("pointer", [-1, MAX_POINTER + 1, -(2**63), 2**63 - 1])
def test_a_bad_pointer_is_named_in_avro(pointer: int) -> None:
    body = body_of(AVRO, pointer, ["a"])
    for decode in (publish, rollback):
        with pytest.raises(MessageError) as caught:
            decode(AVRO, body)
        assert str(caught.value) == f"transactionWritePointer: {WHOLE}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"transactionWritePointer": 7, "messages": {}}', "messages: must be a list"),
        (b'{"transactionWritePointer": 7, "keys": []}',
         "keys: is not a member of this request"),
        (b'{"transactionWritePointer": 7, "messages": [1,}',
         "messages[1]: is not valid JSON: invalid character (byte 46)"),
    ],
)  # fmt: skip
def test_a_bad_publish_under_a_pointer_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        publish(JSON, body)
    assert str(caught.value) == said


def test_bytes_after_a_publish_of_what_is_stored_are_refused() -> None:
    with pytest.raises(MessageError, match=r"^body: has bytes after the end of its Avro: 1$"):
        publish(AVRO, body_of(AVRO, 7, []) + b"\0")


# --- The answer to a publish, and rollback ---

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
        request = decode_poll(codec, body, isolation)
        assert (request.snapshot, request.isolation) == (READ, COMMITTED)
    with pytest.raises(MessageError, match=r"^isolation: must be read_committed with a"):
        decode_poll(codec, body, UNCOMMITTED)
    assert decode_poll(codec, poll_body(codec, None)).snapshot is None


def test_the_isolation_of_a_body_counts_beside_its_snapshot() -> None:
    members: dict[str, Any] = {"transaction": SNAPSHOT, "isolation": COMMITTED}
    assert decode_poll(JSON, json.dumps(members).encode(), UNCOMMITTED).snapshot == READ
    members["isolation"] = UNCOMMITTED
    with pytest.raises(MessageError, match=r"^isolation: must be read_committed with a"):
        decode_poll(JSON, json.dumps(members).encode(), COMMITTED)


def test_the_bytes_of_a_poll_with_a_snapshot_are_these() -> None:
    text = b'{"readPointer":5}'
    request = decode_poll(AVRO, b"\x04\x01\x02\x00\x22" + text)
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
        decode_poll(codec, poll_body(codec, transaction))
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "transaction: is not valid JSON: Input data was truncated"),
        (b"{", "transaction: is not valid JSON: Input data was truncated"),
        (b"\xff", "transaction: is not valid JSON: invalid character (byte 0)"),
        (b"[" * 100_000, "transaction: must be an object, with pointers in its lists"),
        (b"null", "transaction: must be an object or null"),
    ],
)
def test_a_snapshot_that_is_no_json_is_refused(text: bytes, said: str) -> None:
    asked = {"startFrom": None, "inclusive": True, "limit": None, "transaction": text}
    with pytest.raises(MessageError) as caught:
        decode_poll(AVRO, written(POLL, asked))
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
    found = decode_poll(codec, poll_body(codec, given)).snapshot
    assert found == Snapshot(TEPHRA, None, frozenset(pointers[:1000]), frozenset(pointers[1000:]))
