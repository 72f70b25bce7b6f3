"""Transactions: each request with each of its errors."""

import gzip
import json
from datetime import datetime
from typing import Any

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TXNS, TransactionClient, post, record, said
from tests.kits.contract.wire import JSON, Target, fresh_type, operation, wait_until

MB = 1 << 20
GROUP_LOG = "system/_txn.default"


@pytest.fixture
def txn(target: Target) -> TransactionClient:
    return TransactionClient(target)


def ms(text: str) -> int:
    assert (text[-5], text[-1]) == (".", "Z")
    return round(datetime.fromisoformat(text).timestamp() * 1000)


# --- Begin ---


@on_one_store
@pytest.mark.parametrize("body", [None, b"", b" \n", {}, {"group": None, "topic": None}])
def test_a_transaction_begins_in_the_default_group_for_a_minute(target: Target, body: Any) -> None:
    reply = post(target, "", body, JSON if isinstance(body, dict) else ())
    assert (reply.status, reply.json.keys()) == (201, {"txn", "expires_at"})
    id_ = reply.json["txn"]
    assert int(id_) >= 1 << 62
    assert reply.header("Location") == f"{TXNS}/{id_}"
    assert reply.header("Access-Control-Allow-Origin") is None
    shown = target.request("GET", f"{TXNS}/{id_}").json
    assert ms(shown["expires_at"]) - ms(shown["begun_at"]) == 60_000
    assert shown["expires_at"] == reply.json["expires_at"]
    assert (shown["state"], shown["group"], shown["records"]) == ("open", "default", 0)
    assert shown["owner"] is None, "access is open"


@on_one_store
def test_a_begin_may_be_compressed(target: Target) -> None:
    raw = gzip.compress(json.dumps({"timeout_ms": 900_000}).encode())
    reply = post(target, "", raw, {**JSON, "Content-Encoding": "gzip"})
    shown = target.request("GET", f"{TXNS}/{reply.json['txn']}").json
    assert ms(shown["expires_at"]) - ms(shown["begun_at"]) == 900_000


@on_one_store
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"group": "a b"}, "group"),
        ({"group": "g" * 245}, "group"),
        ({"group": "g", "topic": "ns/t"}, "topic"),
        ({"topic": "ns"}, "topic"),
        ({"topic": GROUP_LOG}, "topic"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": 900_001}, "timeout_ms"),
        ({"more": 5}, "more"),
        ([], "body"),
        (b"{", "body"),
    ],
)
def test_a_bad_begin_names_its_member(target: Target, body: Any, field: str) -> None:
    assert said(post(target, "", body), 400).startswith(f"{field}: ")


def test_a_begin_with_an_unknown_topic_is_not_found(target: Target) -> None:
    for name in (TopicClient(target).name, "system/other"):
        assert name in said(post(target, "", {"topic": name}), 404)


# --- Records ---


def test_records_are_stored_once_and_shown_with_the_transaction(
    target: Target, topic: TopicClient, txn: TransactionClient
) -> None:
    other = TopicClient(target).create()
    given = [record(topic, 0, "a", key="k"), record(other, 1, None)]
    written = txn.write(*given)
    assert written["records"] == 2
    assert written["bytes"] == len('{"payload":"a","key":"k"}{"payload":null}')
    assert written["topics"] == sorted([topic.name, other.name])
    assert written["state"] == "open"
    again = txn.write(record(topic, 2), *given)
    assert again["records"] == 3
    assert txn.shown() == again


def test_records_may_be_compressed_and_written_in_any_order(
    topic: TopicClient, txn: TransactionClient
) -> None:
    raw = json.dumps({"records": [record(topic, lsn) for lsn in (2, 0)]}).encode()
    reply = txn.post("/records", gzip.compress(raw), {"Content-Encoding": "gzip"})
    assert (reply.status, reply.json["records"]) == (200, 2)
    assert len(txn.write(record(topic, 1)) and txn.commit(3)["records"]) == 3


@on_one_store
@pytest.mark.parametrize(
    ("body", "start"),
    [
        (None, "records: "),
        ({}, "records: "),
        ({"records": []}, "records: there is none"),
        ({"records": {}}, "records: "),
        ({"records": [], "more": 5}, "more: "),
        (b"[", "body: "),
        ({"records": [5]}, "records[0]: must be an object"),
        ({"records": [{"topic": "ns/t", "payload": "a"}]}, "records[0].lsn: is required"),
        ({"records": [record("ns/t", -1)]}, "records[0].lsn: "),
        ({"records": [record("ns/t", 0), record("t", 1)]}, "records[1].topic: "),
        ({"records": [record(GROUP_LOG, 0)]}, "records[0].topic: "),
        ({"records": [record("ns/t", 0, 5)]}, "records[0].payload: "),
        ({"records": [record("ns/t", 0, size=5)]}, "records[0].size: "),
        ({"records": [record(OPLOG, 0, {"event": "x"})]}, "records[0].payload."),
        ({"records": [record(OPLOG, 0, "{}", key="k")]}, "records[0].key: "),
    ],
)
def test_bad_records_are_named_and_nothing_is_stored(
    txn: TransactionClient, body: Any, start: str
) -> None:
    assert said(txn.post("/records", body), 400).startswith(start)
    assert txn.shown()["records"] == 0


@on_one_store
def test_a_hundred_bad_records_are_named(txn: TransactionClient) -> None:
    reply = txn.records(*(record("ns/t", lsn, 5) for lsn in range(101)))
    assert "101 records are bad" in said(reply, 400)
    errors = reply.json["errors"]
    assert [each["field"] for each in errors] == [f"records[{k}].payload" for k in range(100)]


@on_one_store
def test_a_record_larger_than_a_message_may_be_is_refused(
    topic: TopicClient, txn: TransactionClient
) -> None:
    assert "records[0]" in said(txn.records(record(topic, 0, "x" * (MB + 1))), 413)
    assert txn.shown()["records"] == 0


def test_an_unknown_topic_is_named_and_nothing_is_stored(
    target: Target, topic: TopicClient, txn: TransactionClient
) -> None:
    for name in (TopicClient(target).name, "system/other"):
        assert name in said(txn.records(record(topic, 0), record(name, 1)), 404)
    assert txn.shown()["records"] == 0


def test_an_lsn_has_one_content(topic: TopicClient, txn: TransactionClient) -> None:
    txn.write(record(topic, 7, "a"))
    assert txn.write(record(topic, 7, "a"))["records"] == 1
    for other in (record(topic, 7, "b"), record(topic, 7, "a", ttl=5)):
        assert "7" in said(txn.records(record(topic, 8), other), 409)
    assert "lsn 9 " in said(txn.records(record(topic, 9, "a"), record(topic, 9, "b")), 409)
    assert txn.shown()["records"] == 1


@on_one_store
@pytest.mark.parametrize("path", ["", "/{}/records", "/{}/commit", "/{}/abort"])
def test_another_content_type_is_refused(target: Target, txn: TransactionClient, path: str) -> None:
    for headers in ({"Content-Type": "text/plain"}, {}):
        reply = post(target, path.format(txn.id), b"{}", headers)
        assert "application/json" in said(reply, 415)
    reply = post(target, path.format(txn.id), b"{}", {**JSON, "Content-Encoding": "br"})
    assert "gzip" in said(reply, 415)
    not_gzip = post(target, path.format(txn.id), b"{}", {**JSON, "Content-Encoding": "gzip"})
    assert said(not_gzip, 400).startswith("body: ")


@on_one_store
@pytest.mark.parametrize("path", ["", "/{}/commit", "/{}/abort"])
def test_a_page_needs_a_content_type_even_for_an_empty_body(
    target: Target, txn: TransactionClient, path: str
) -> None:
    """Without it a browser asks for no preflight, and sends what pages of other origins post."""
    for page in ({"Origin": "http://localhost:1"}, {"Sec-Fetch-Site": "cross-site"}):
        for headers in (page, {**page, "Content-Type": "text/plain"}):
            assert "application/json" in said(post(target, path.format(txn.id), b"", headers), 415)
    assert txn.shown()["state"] == "open"
    own_page = {"Origin": "http://localhost:1", **JSON}
    assert post(target, f"/{txn.id}/abort", b"", own_page).status == 200


@on_one_store
@pytest.mark.parametrize("path", ["", "/{}/commit", "/{}/abort"])
def test_a_long_body_without_records_is_too_large(
    target: Target, txn: TransactionClient, path: str
) -> None:
    assert said(post(target, path.format(txn.id), b" " * (16 * 1024 + 1)), 413)


# --- A transaction with a topic ---


def test_a_transaction_of_a_topic_takes_records_of_this_topic_only(
    target: Target, topic: TopicClient
) -> None:
    other = TopicClient(target).create()
    txn = TransactionClient(target, topic=topic.name)
    reply = txn.records(record(topic, 0), record(other, 1))
    assert said(reply, 400).startswith("records[1].topic: ")
    txn.write(record(topic, 0))
    done = txn.commit(1)
    shown = txn.shown()
    assert (shown["topic"], shown["topics"], "group" in shown) == (topic.name, [topic.name], False)
    assert (shown["begin"], shown["commit"]) == (done["begin"], done["commit"])
    assert done["records"][0][:20] == done["commit"][:20]


def test_a_transaction_of_the_oplog_takes_operations_only(
    target: Target, topic: TopicClient
) -> None:
    txn = TransactionClient(target, topic=OPLOG)
    reply = txn.records(record(topic, 0))
    assert said(reply, 400).startswith("records[0].topic: ")
    txn.write(record(OPLOG, 0, operation("insert", "a", fresh_type())))
    shown = txn.shown()
    assert (shown["topic"], shown["group"], shown["topics"]) == (OPLOG, "default", [OPLOG])


# --- Commit ---


def test_a_commit_answers_the_same_when_it_is_repeated(
    target: Target, topic: TopicClient, txn: TransactionClient
) -> None:
    type_ = fresh_type()
    txn.write(record(topic, 0), record(OPLOG, 1, operation("insert", "a", type_)))
    txn.write(record(topic, 2), record(OPLOG, 3, json.dumps(operation("insert", "b", type_))))
    assert "1" in said(txn.post("/commit", {"records": 5}), 409)
    done = txn.commit(4)
    assert [len(id_) for id_ in done["records"]] == [40, 24, 40, 24]
    assert done["records"][0] < done["records"][2]
    assert done["records"][1] < done["records"][3]
    assert (len(done["begin"]), len(done["commit"])) == (40, 40)
    assert txn.commit(4) == done
    shown = txn.shown()
    assert (shown["state"], shown["records"], "reason" in shown) == ("committed", 4, False)
    assert (shown["begin"], shown["commit"]) == (done["begin"], done["commit"])
    with target.follow("0", types=type_) as stream:
        blocks = stream.until("live")
    assert len(blocks) == 4  # reset, two states, live
    for other in (3, 5):
        assert "committed" in said(txn.post("/commit", {"records": other}), 409)


def test_operations_of_a_commit_name_their_place_in_it(
    target: Target, txn: TransactionClient
) -> None:
    type_ = fresh_type()
    with target.follow(types=type_) as stream:
        operations = [operation("insert", name, type_) for name in "ab"]
        txn.write(*(record(OPLOG, lsn, each) for lsn, each in enumerate(operations)))
        ids = txn.commit(2)["records"]
        blocks = stream.take(2)
    data = [json.loads(block.split(b"data: ")[1]) for block in blocks]
    assert [(each["id"], each["txn"], each["lsn"], each["of"]) for each in data] == [
        ("a", txn.id, 0, 2),
        ("b", txn.id, 1, 2),
    ]
    assert [block[4:28].decode() for block in blocks] == ids


def test_an_empty_transaction_commits(txn: TransactionClient) -> None:
    assert txn.commit(0)["records"] == []


def test_records_past_the_number_of_a_commit_are_ignored(
    topic: TopicClient, txn: TransactionClient
) -> None:
    txn.write(*(record(topic, lsn) for lsn in range(3)))
    assert len(txn.commit(2)["records"]) == 2
    assert txn.shown()["records"] == 2


@on_one_store
@pytest.mark.parametrize("body", [None, {}, {"records": -1}, {"records": "1"}, {"records": None}])
def test_a_commit_names_the_number_of_its_records(txn: TransactionClient, body: Any) -> None:
    assert said(txn.post("/commit", body), 400).startswith("records: ")
    assert txn.shown()["state"] == "open"


def test_a_commit_that_lacks_records_names_them_and_can_be_repeated(
    topic: TopicClient, txn: TransactionClient
) -> None:
    txn.write(record(topic, 0), record(topic, 3))
    reply = txn.post("/commit", {"records": 4})
    assert "2" in said(reply, 409)
    assert said(txn.post("/commit", {"records": 10**30}), 409)
    txn.write(record(topic, 1), record(topic, 2))
    assert len(txn.commit(4)["records"]) == 4


def test_records_of_a_deleted_topic_have_no_ids(
    target: Target, topic: TopicClient, txn: TransactionClient
) -> None:
    other = TopicClient(target).create()
    txn.write(record(topic, 0), record(other, 1))
    other.request("DELETE")
    assert txn.shown()["topics"] == [topic.name]
    first, second = txn.commit(2)["records"]
    assert (len(first), second) == (40, None)


# --- Abort and time-out ---


def test_an_abort_answers_the_same_when_it_is_repeated(
    topic: TopicClient, txn: TransactionClient
) -> None:
    txn.write(record(topic, 0))
    aborted = txn.abort()
    assert (aborted["state"], aborted["reason"]) == ("aborted", "aborted by the client")
    assert txn.abort() == aborted == txn.shown()
    assert said(txn.post("/abort", {"reason": "r"}), 400).startswith("reason: ")


def test_a_wrong_state_is_told_with_its_reason(target: Target, topic: TopicClient) -> None:
    committed, aborted = (TransactionClient(target) for _ in range(2))
    late = TransactionClient(target, timeout_ms=1)
    committed.commit(0)
    aborted.abort()
    assert wait_until(lambda: late.shown()["state"] == "aborted")
    assert late.shown()["reason"] == "timed out"
    reasons = {
        committed: "has committed",
        aborted: "was aborted by the client",
        late: "timed out",
    }
    for txn, reason in reasons.items():
        assert reason in said(txn.records(record(topic, 0)), 409)
    for txn in (aborted, late):
        assert reasons[txn] in said(txn.post("/commit", {"records": 0}), 409)
        assert txn.abort() == txn.shown()
    assert "has committed" in said(committed.post("/abort"), 409)
