"""The bodies of begin, records and commit, digests, and the shown JSON."""

import json
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from oplogd.decode.pieces import Pieces
from oplogd.decode.walk import MANY_COMMAS
from oplogd.errors import (
    MessageError,
    OplogError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import MessageId, record_id
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.once import OnceNumber
from oplogd.model.operation import Operation
from oplogd.model.transaction import FIRST_ID, Reason, State
from oplogd.store.transactions import OPLOG_INDEX, Commit, CommittedLog, OperationRun, Transaction
from oplogd.topics.codec.codec import InvalidMessagesError
from oplogd.topics.transactions import answers, rules
from oplogd.topics.transactions.begin import Begin, parsing_begin
from oplogd.topics.transactions.rules import GivenRecord

NOW = "2024-12-01T10:00:00.000Z"
LATER = "2024-12-01T10:00:01.000Z"
TOPIC = TopicName("ns", "t")
INSERT = {"event": "insert", "type": "video", "id": "a"}


def body(**members: Any) -> bytes:
    return json.dumps(members).encode()


def done(pieces: Pieces[Any]) -> tuple[Any, int]:
    """Return the result of work, and the number of its pieces."""
    count = 0
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value, count
        count += 1


def parse_begin(raw: bytes, most: int = 100_000) -> Begin:
    begin: Begin = done(parsing_begin(raw, NOW, most))[0]
    return begin


def records(*given: dict[str, Any], arrival: str = NOW, most: int = 100_000) -> list[GivenRecord]:
    return parsed(body(records=given), arrival, most)


def parsed(raw: bytes, arrival: str = NOW, most: int = 100_000) -> list[GivenRecord]:
    writing, _ = done(rules.parsing_records(raw, arrival, most))
    assert {record.topic for record in writing.records} == set(writing.topics)
    return [*writing.records]


def one(**members: Any) -> GivenRecord:
    (record,) = records({"topic": "ns/t", "lsn": 0, "payload": "a", **members})
    return record


def error_of(call: Callable[[], Any]) -> str:
    with pytest.raises(OplogError) as caught:
        call()
    return str(caught.value)


# --- Begin, commit, abort ---


@pytest.mark.parametrize("raw", [b"", b" \n", b"{}", b'{"group": null, "timeout_ms": null}'])
def test_without_members_a_transaction_is_in_the_default_group_for_a_minute(raw: bytes) -> None:
    assert parse_begin(raw) == Begin("default", None, 60_000)


def test_a_begin_names_a_group_or_a_topic() -> None:
    longest = "g" * 244
    assert parse_begin(body(group=longest, timeout_ms=1)) == Begin(longest, None, 1)
    assert parse_begin(body(topic="ns/t", timeout_ms=900_000)) == Begin(None, TOPIC, 900_000)
    assert parse_begin(body(topic="system/oplog")) == Begin(None, OPLOG, 60_000)


def test_a_begin_gives_a_number_of_a_key() -> None:
    given = {"key": "k" * 249, "number": 2**53 - 1}
    once = OnceNumber("k" * 249, 2**53 - 1)
    assert parse_begin(body(once=given)) == Begin("default", None, 60_000, once)
    assert parse_begin(body(once=None)) == Begin("default", None, 60_000)


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"group": "g" * 245}, "group"),
        ({"group": ""}, "group"),
        ({"group": "a/b"}, "group"),
        ({"group": ".."}, "group"),
        ({"group": 5}, "group"),
        ({"group": "g", "topic": "ns/t"}, "topic"),
        ({"topic": "t"}, "topic"),
        ({"topic": "a/b/c"}, "topic"),
        ({"topic": "/t"}, "topic"),
        ({"topic": ["ns/t"]}, "topic"),
        ({"topic": "system/_txn.default"}, "topic"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": 900_001}, "timeout_ms"),
        ({"timeout_ms": 1.5}, "timeout_ms"),
        ({"timeout_ms": True}, "timeout_ms"),
        ({"timeout_ms": "60"}, "timeout_ms"),
        ({"ttl": 5}, "ttl"),
        ({"once": "k"}, "once"),
        ({"once": {}}, "once.key"),
        ({"once": {"key": "k"}}, "once.number"),
        ({"once": {"key": None, "number": 1}}, "once.key"),
        ({"once": {"key": "a/b", "number": 1}}, "once.key"),
        ({"once": {"key": "k" * 250, "number": 1}}, "once.key"),
        ({"once": {"key": "k", "number": -1}}, "once.number"),
        ({"once": {"key": "k", "number": 2**53}}, "once.number"),
        ({"once": {"key": "k", "number": "1"}}, "once.number"),
        ({"once": {"key": "k", "number": 1, "topic": "ns/t"}}, "once.topic"),
    ],
)
def test_a_bad_member_of_a_begin_is_named(members: dict[str, Any], field: str) -> None:
    assert error_of(lambda: parse_begin(body(**members))).startswith(f"{field}: ")


@pytest.mark.parametrize(
    "parse", [parse_begin, rules.parse_commit, rules.parse_abort], ids=lambda p: p.__name__
)
@pytest.mark.parametrize("raw", [b"[]", b"{", b"5", b"\xff", b"[" * 5000, b"{}{}"])
def test_a_body_that_is_no_object_is_refused(parse: Callable[[bytes], Any], raw: bytes) -> None:
    assert error_of(lambda: parse(raw)).startswith("body: ")


def test_a_commit_names_the_number_of_records() -> None:
    assert [rules.parse_commit(body(records=count)) for count in (0, 3, 10**30)] == [0, 3, 10**30]
    for given in (None, -1, 1.0, "3", True, [3]):
        with pytest.raises(MessageError, match=r"^records: "):
            rules.parse_commit(body(records=given))
    assert error_of(lambda: rules.parse_commit(b"")) == "records: is required"
    assert error_of(lambda: rules.parse_commit(b'{"count":1}')).startswith("count: ")


def test_an_abort_has_no_members() -> None:
    rules.parse_abort(b"")
    rules.parse_abort(b"{}")
    assert error_of(lambda: rules.parse_abort(body(reason="r"))).startswith("reason: ")


def test_a_list_is_of_a_state_and_has_a_limit() -> None:
    assert rules.parse_state(None) is None
    assert rules.parse_state("committing") is State.COMMITTING
    assert error_of(lambda: rules.parse_state("done")) == (
        "state: must be open, committing, committed, aborted"
    )
    assert [rules.parse_limit(given) for given in (None, "1", "1000")] == [100, 1, 1000]
    for given in ("", "0", "1001", "-1", "1.5", "x", "²", "1" * 5000):
        with pytest.raises(MessageError, match=r"^limit: "):
            rules.parse_limit(given)


# --- Records ---


def test_a_record_is_a_message_of_its_topic() -> None:
    record = one(lsn=7, key="k", headers=[["n", "v"]], ttl=5)
    data = b'{"payload":"a","key":"k","headers":[["n","v"]]}'
    assert (record.lsn, record.topic, record.content) == (7, TOPIC, Message(data, 5))
    assert one(payload=None).content == Message(b'{"payload":null}', None)
    binary = one(payload="/w==", encoding="base64")
    assert binary.content == Message(b'{"payload":"/w==","encoding":"base64"}', None)


@pytest.mark.parametrize("payload", [INSERT, json.dumps(INSERT)])
def test_a_record_of_the_oplog_is_an_operation(payload: Any) -> None:
    record = one(topic="system/oplog", payload=payload)
    data = b'{"timestamp":"%s","parents":[],"type":"video","id":"a"}' % NOW.encode()
    assert record.topic == OPLOG
    assert record.content == Operation("insert", "video/a", data)


def test_an_operation_keeps_its_timestamp() -> None:
    given = {**INSERT, "timestamp": "2014-11-06T12:04:39.041+01:00"}
    record = one(topic="system/oplog", payload=given)
    assert json.loads(record.content.data)["timestamp"] == "2014-11-06T11:04:39.041Z"


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"lsn": 0, "payload": "a"}, "topic: is required"),
        ({"topic": "t", "lsn": 0, "payload": "a"}, "topic: "),
        ({"topic": "system/_txn.g", "lsn": 0, "payload": "a"}, "topic: "),
        ({"topic": "ns/t", "payload": "a"}, "lsn: is required"),
        ({"topic": "ns/t", "lsn": -1, "payload": "a"}, "lsn: "),
        ({"topic": "ns/t", "lsn": "0", "payload": "a"}, "lsn: "),
        ({"topic": "ns/t", "lsn": 0.0, "payload": "a"}, "lsn: "),
        ({"topic": "ns/t", "lsn": True, "payload": "a"}, "lsn: "),
        ({"topic": "ns/t", "lsn": 0}, "payload: is required"),
        ({"topic": "ns/t", "lsn": 0, "payload": INSERT}, "payload: "),
        ({"topic": "ns/t", "lsn": 0, "payload": "a", "ttl": 0}, "ttl: "),
        ({"topic": "ns/t", "lsn": 0, "payload": "a", "headers": [["n"]]}, "headers[0]: "),
        ({"topic": "ns/t", "lsn": 0, "payload": "a", "more": 5}, "more: "),
        ({"topic": "system/oplog", "lsn": 0, "payload": INSERT, "key": "k"}, "key: "),
        ({"topic": "system/oplog", "lsn": 0, "payload": INSERT, "ttl": 5}, "ttl: "),
        ({"topic": "system/oplog", "lsn": 0, "payload": {**INSERT, "type": ""}}, "payload.type: "),
        ({"topic": "system/oplog", "lsn": 0, "payload": None}, "payload: "),
        ({"topic": "system/oplog", "lsn": 0, "payload": "{"}, "payload: "),
    ],
)
def test_a_bad_record_is_named_with_its_place(record: dict[str, Any], field: str) -> None:
    good = {"topic": "ns/t", "lsn": 9, "payload": "good"}
    assert error_of(lambda: records(good, record)).startswith(f"records[1].{field}")


@pytest.mark.parametrize("record", [5, "a", None, []])
def test_a_record_is_an_object(record: Any) -> None:
    assert error_of(lambda: records(record)) == "records[0]: must be an object"


def test_the_first_hundred_bad_records_are_named() -> None:
    with pytest.raises(InvalidMessagesError) as caught:
        records(*({"topic": "ns/t", "lsn": 0} for _ in range(150)))
    assert (len(caught.value.bad), caught.value.count) == (100, 150)
    assert caught.value.bad[99].field == "records[99].payload"
    assert str(caught.value) == (
        "records[0].payload: is required; 150 records are bad, nothing was stored"
    )


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"records":{}}', b'{"records":[]}'])
def test_there_must_be_records(raw: bytes) -> None:
    assert error_of(lambda: parsed(raw)).startswith("records: ")


def test_a_message_that_is_too_large_is_told_apart() -> None:
    with pytest.raises(InvalidMessagesError) as caught:
        one(payload="x" * (1 << 20) + "x")
    assert caught.value.too_large


def test_records_past_the_limit_are_too_many() -> None:
    two = [{"topic": "ns/t", "lsn": lsn, "payload": "a"} for lsn in (0, 1)]
    assert [record.lsn for record in records(*two, most=2)] == [0, 1]
    for given in ([*two, two[0]], [{**two[0], "lsn": 2}], [{**two[0], "lsn": 10**30}]):
        with pytest.raises(TransactionTooLargeError, match=r"2 records \(--txn-max-records\)"):
            records(*given, most=2)


def test_a_repeated_lsn_is_taken_once_and_needs_the_same_content() -> None:
    first = {"topic": "ns/t", "lsn": 3, "payload": "a"}
    assert [record.lsn for record in records(first, {**first, "lsn": 1}, first)] == [3, 1]
    with pytest.raises(TransactionConflictError, match="lsn 3 "):
        records(first, {**first, "payload": "b"})


@pytest.mark.thorough
def test_many_records_are_read_in_pieces_one_by_one() -> None:
    count = MANY_COMMAS // 2
    raw = b'{"records":[%s]}' % b",".join(
        b'{"topic":"ns/t","lsn":%d,"payload":"a"}' % lsn for lsn in range(count)
    )
    writing, pieces = done(rules.parsing_records(raw, NOW, count))
    assert [record.lsn for record in writing.records] == list(range(count))
    assert pieces > count / 64 + count / 1000


# --- Digests ---


def test_equal_records_have_equal_digests_however_they_are_written() -> None:
    spaced = b'{"records":[ {"lsn":0, "payload":"\\u0061" ,"topic":"ns/t", "key":null} ]}'
    assert parsed(spaced) == [one()]


@pytest.mark.parametrize(
    "members",
    [{"topic": "ns/u"}, {"payload": "b"}, {"key": "k"}, {"ttl": 5}, {"headers": [["n", "v"]]}],
)
def test_each_member_changes_the_digest(members: dict[str, Any]) -> None:
    assert one(**members).digest != one().digest


def test_the_lsn_is_no_part_of_the_digest() -> None:
    assert one(lsn=5).digest == one().digest


def test_the_time_of_arrival_is_no_part_of_the_digest() -> None:
    given = {"topic": "system/oplog", "lsn": 0, "payload": INSERT}
    (first,), (again,) = records(given), records(given, arrival=LATER)
    assert first.digest == again.digest
    assert [json.loads(each.content.data)["timestamp"] for each in (first, again)] == [NOW, LATER]
    timed = [{**given, "payload": {**INSERT, "timestamp": ms}} for ms in (NOW, LATER)]
    digests = [records(each)[0].digest for each in timed]
    assert len({first.digest, *digests}) == 3


@pytest.mark.parametrize("members", [{"event": "delete"}, {"id": "b"}, {"parents": ["p"]}])
def test_each_member_of_an_operation_changes_the_digest(members: dict[str, Any]) -> None:
    before = one(topic="system/oplog", payload=INSERT)
    assert one(topic="system/oplog", payload={**INSERT, **members}).digest != before.digest


# --- Answers ---

OPEN = Transaction(
    id=FIRST_ID + 5,
    log=3,
    group="g",
    only_log=None,
    state=State.OPEN,
    reason=None,
    begun_ms=1_700_000_000_000,
    expires_ms=1_700_000_060_000,
    logs=(0, 7, 4),
    records=2,
    bytes=30,
    begin=Mark(1, 5, 2),
    commit=None,
)
NAMES = {0: "system/oplog", 4: "ns/t"}


def test_an_open_transaction_shows_the_topics_that_exist() -> None:
    assert answers.shown(OPEN, NAMES) == {
        "txn": "4611686018427387909",
        "state": "open",
        "group": "g",
        "owner": None,
        "begun_at": "2023-11-14T22:13:20.000Z",
        "expires_at": "2023-11-14T22:14:20.000Z",
        "records": 2,
        "bytes": 30,
        "topics": ["ns/t", "system/oplog"],
        "begin": str(MessageId(5, 2)),
    }


def test_a_finished_transaction_shows_its_reason_or_its_commit() -> None:
    aborted = OPEN._replace(state=State.ABORTED, reason=Reason.TIMEOUT)
    shown = answers.shown(aborted, NAMES)
    assert (shown["state"], shown["reason"]) == ("aborted", "timed out")
    assert answers.shown(OPEN._replace(owner="sub:ada"), NAMES)["owner"] == "sub:ada"
    committed = OPEN._replace(state=State.COMMITTED, group=None, only_log=4, commit=Mark(9, 8, 7))
    shown = answers.shown(committed, NAMES)
    assert (shown["topic"], shown["commit"], "group" in shown) == ("ns/t", str(MessageId(8, 7)), 0)


def test_the_answer_to_a_commit_names_every_record_by_lsn() -> None:
    count = 100_000
    logs = (CommittedLog(4, Mark(9, 8, 7), count - 3), CommittedLog(7, None, count - 2))
    order = array("I", [*[0] * (count - 2), 1, OPLOG_INDEX])
    transaction = OPEN._replace(commit=Mark(2, 6, 1))
    commit = Commit(transaction, logs, (OperationRun(5, 1, 1_700_000_000_123),), order)
    raw, pieces = done(answers.encoding_commit(commit))
    answer = json.loads(raw)
    assert (answer["begin"], answer["commit"]) == (str(MessageId(5, 2)), str(MessageId(6, 1)))
    ids = answer["records"]
    assert len(ids) == count
    assert ids[:2] == [str(record_id(8, 7, lsn, is_last=False)) for lsn in (0, 1)]
    assert ids[-3:] == [
        str(record_id(8, 7, count - 3, is_last=True)),
        None,
        "6553f100007b000000000005",
    ]
    assert pieces > count / 1000
    empty = commit._replace(order=array("I"), runs=())
    assert json.loads(done(answers.encoding_commit(empty))[0])["records"] == []


def test_names_of_groups_are_checked() -> None:
    with pytest.raises(MessageError):
        rules.group_name("a b")
