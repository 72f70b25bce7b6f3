"""Transactions of the Python client against scripted servers."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from oplogc.topics import (
    BadRequestError,
    Committed,
    Message,
    NotAllowed,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    TopicNotFound,
    TransactionError,
    UnavailableError,
)
from tests.integration.clients.scripted_transactions import (
    SHOWN,
    TXN,
    TransactionServer,
    id_of,
    refused,
)
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.topics_of import TopicsOf, errors_of
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import answer

FAST = (0.01, 0.05)
BUSY = refused("503 Busy", "busy")
MANY = refused("429 Many", "too many")
PAGE = answer("200 OK", "<html>")
CALLS = ["txns", "records", "commit", "abort"]


def planned(call: str, *answers: bytes | None) -> dict[str, Any]:
    return {"begin" if call == "txns" else call: answers}


def test_leaving_the_block_commits_and_every_future_has_its_id(topics_of: TopicsOf) -> None:
    operation = {"event": "insert", "type": "video", "id": "é", "parents": ["user/1"]}
    with TransactionServer() as server, topics_of(f"{server.url}/base") as topics:
        with topics.transaction(group="shop", timeout=90.5) as txn:
            assert txn.id == TXN
            futures = [
                txn.write("a", Message("é", "k", [("n", "v")], 60)),
                txn.write("shop/b", b"\xff"),
                txn.write("system/oplog", operation),
                txn.write("system/oplog", '{"event":"delete"}'),
            ]
            assert not any(future.done() for future in futures)
        ids = [id_of(lsn) for lsn in range(4)]
        assert [future.result(DEADLINE) for future in futures] == ids
        assert txn.commit() == Committed("0b", "0c", tuple(ids))
    paths = {head.split()[1] for head in server.heads}
    assert paths == {
        "/base/v1/txns",
        f"/base/v1/txns/{TXN}/records",
        f"/base/v1/txns/{TXN}/commit",
    }
    assert json.loads(server.bodies[0]) == {"group": "shop", "timeout_ms": 90_500}
    written: list[dict[str, object]] = [
        {"topic": "default/a", "payload": "é", "key": "k", "headers": [["n", "v"]], "ttl": 60},
        {"topic": "shop/b", "payload": "/w==", "encoding": "base64"},
        {"topic": "system/oplog", "payload": operation},
        {"topic": "system/oplog", "payload": '{"event":"delete"}'},
    ]
    records = [record for body in server.bodies[1:-1] for record in json.loads(body)["records"]]
    assert records == [{"lsn": lsn, **each} for lsn, each in enumerate(written)]
    assert (server.calls[-1], server.bodies[-1]) == ("commit", b'{"records":4}')


def test_a_transaction_without_records_commits(topics_of: TopicsOf) -> None:
    with TransactionServer() as server, topics_of(server.url) as topics:
        with topics.transaction(topic="t") as txn:
            pass
        assert txn.commit().records == ()
    assert json.loads(server.bodies[0]) == {"topic": "default/t", "timeout_ms": 60_000}
    assert server.calls == ["txns", "commit"]


def test_a_record_whose_topic_is_gone_has_no_id(topics_of: TopicsOf) -> None:
    ids = [id_of(0), None]
    gone = answer("200 OK", json.dumps({"begin": "0b", "commit": "0c", "records": ids}))
    with TransactionServer(commit=[gone]) as server, topics_of(server.url) as topics:
        with topics.transaction() as txn:
            futures = [txn.write("t", "a"), txn.write("gone", "b")]
        assert [future.result(DEADLINE) for future in futures] == ids


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "lost", [None, BUSY, MANY, refused("408 Slow", "late")], ids=["cut", "503", "429", "408"]
)
def test_a_request_without_an_answer_is_sent_again_as_it_was(
    topics_of: TopicsOf, call: str, lost: bytes | None
) -> None:
    with (
        TransactionServer(**planned(call, lost, lost)) as server,
        topics_of(server.url, backoff=FAST) as topics,
        topics.transaction() as txn,
    ):
        future = txn.write("t", "a")
        if call == "abort":
            txn.abort()
        else:
            txn.commit()
            assert future.result(DEADLINE) == id_of(0)
    assert server.calls.count(call) == 3
    repeated = [
        body for name, body in zip(server.calls, server.bodies, strict=True) if name == call
    ]
    assert len(set(repeated)) == 1
    if call != "abort":
        expected = [name for name in CALLS[:3] for _ in range(3 if name == call else 1)]
        assert server.calls == expected


def test_each_call_goes_to_the_next_agent_when_one_is_away(topics_of: TopicsOf) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    for call in CALLS[:3]:
        with (
            TransactionServer(**planned(call, None), repeat=True) as first,
            TransactionServer() as second,
            topics_of([dead, first.url, second.url], backoff=(60, 60)) as topics,
        ):
            with topics.transaction() as txn:
                future = txn.write("t", "a")
            assert future.result(DEADLINE) == id_of(0)
        at = CALLS.index(call)
        assert (first.calls, second.calls) == (CALLS[: at + 1], CALLS[at:3])


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 Unknown", "409 Ended", "413 Large"])
@pytest.mark.parametrize("call", ["records", "commit"])
def test_a_refusal_fails_the_transaction_with_the_agents_sentence(
    topics_of: TopicsOf, call: str, status: str
) -> None:
    with (
        TransactionServer(**planned(call, refused(status, "the reason"))) as server,
        topics_of(server.url) as topics,
    ):
        with pytest.raises(TransactionError) as failed, topics.transaction() as txn:
            futures = [txn.write("t", text) for text in "a"]
        advice = "the agent needs a password: give ingest_password; the agent says: "
        reason = f"{advice if status == '401 No' else ''}the reason (HTTP {status[:3]})"
        sentence = f"transaction {TXN} is not committed: {reason}"
        assert str(failed.value) == sentence
        assert isinstance(failed.value.__cause__, RefusedError)
        assert errors_of(futures) == {sentence}
        with pytest.raises(TransactionError, match="the reason"):
            txn.write("t", "late")
        with pytest.raises(TransactionError, match="the reason"):
            txn.commit()
        txn.abort()
    assert server.calls == [*CALLS[: CALLS.index(call) + 1], "abort"]


def test_a_refusal_is_known_in_the_block_and_a_swallowed_error_does_not_commit(
    topics_of: TopicsOf,
) -> None:
    gone = refused("409 Conflict", "transaction N timed out")
    with TransactionServer(records=[gone]) as server, topics_of(server.url) as topics:

        def swallow() -> None:
            with topics.transaction() as txn:
                future = txn.write("t", "a")
                assert "timed out" in str(future.exception(DEADLINE))
                with pytest.raises(TransactionError, match="timed out"):
                    txn.write("t", "b")

        with pytest.raises(TransactionError, match="timed out"):
            swallow()
    assert server.calls == ["txns", "records", "abort"]


def test_a_refused_record_is_named_by_its_lsn(topics_of: TopicsOf) -> None:
    bad = refused("400 Bad", "records[0].key: is bad")
    with (
        TransactionServer(records=[SHOWN, SHOWN, bad]) as server,
        topics_of(server.url, batch_size=1) as topics,
        topics.transaction() as txn,
    ):
        futures = [txn.write("t", text) for text in "abc"]
        with pytest.raises(TransactionError, match=r": records\[2\].key: is bad \(HTTP 400\)"):
            txn.commit()
        assert len(errors_of(futures)) == 1
    assert server.lsns == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refused("401 No", "no"), NotAllowed),
        (refused("404 Not Found", "no"), TopicNotFound),
        (refused("400 Bad", "no"), BadRequestError),
        (refused("302 Found", "no"), RefusedError),
        (PAGE, ProtocolError),
        (answer("201 Created", "{}"), ProtocolError),
        (
            answer("201 Created", '{"txn":"../x","expires_at":"2026-01-31T12:00:00Z"}'),
            ProtocolError,
        ),
    ],
)
def test_a_transaction_that_cannot_begin_says_why_and_writes_nothing(
    topics_of: TopicsOf, reply: bytes, kind: type[Exception]
) -> None:
    with (
        TransactionServer(begin=[reply]) as server,
        topics_of(server.url) as topics,
        pytest.raises(kind),
        topics.transaction(),
    ):
        raise AssertionError("the block was entered")
    assert server.calls == ["txns"]


@pytest.mark.parametrize(
    ("answers", "is_unknown"),
    [
        ([PAGE], True),
        ([answer("200 OK", '{"begin":"0b","commit":"0c","records":[]}')], True),
        ([None, refused("401 No", "no")], True),
        ([BUSY, refused("404 Not Found", "no")], True),
        ([None, refused("409 Conflict", "timed out")], False),
        ([MANY, refused("401 No", "no")], False),
        ([refused("401 No", "no")], False),
    ],
)
def test_a_commit_is_unknown_if_an_agent_may_have_carried_it_out(
    topics_of: TopicsOf, answers: list[bytes | None], is_unknown: bool
) -> None:
    kind = OutcomeUnknownError if is_unknown else TransactionError
    with (
        TransactionServer(commit=answers) as server,
        topics_of(server.url, backoff=FAST) as topics,
    ):
        with pytest.raises(kind), topics.transaction() as txn:
            future = txn.write("t", "a")
        assert isinstance(future.exception(DEADLINE), kind)
        with pytest.raises(kind):
            txn.commit()
        if is_unknown:
            with pytest.raises(kind, match="may be committed"):
                txn.abort()
    assert ("abort" in server.calls) is not is_unknown


@pytest.mark.parametrize(
    ("call", "reply", "kind"),
    [
        ("records", BUSY, TransactionError),
        ("records", None, TransactionError),
        ("commit", BUSY, OutcomeUnknownError),
        ("commit", None, OutcomeUnknownError),
        ("commit", MANY, TransactionError),
        ("txns", BUSY, UnavailableError),
    ],
)
def test_a_transaction_that_is_given_up_tells_what_is_known(
    topics_of: TopicsOf, call: str, reply: bytes | None, kind: type[Exception]
) -> None:
    with (
        TransactionServer(**planned(call, reply), repeat=True) as server,
        topics_of(server.url, backoff=(900, 900), retry_for=DEADLINE) as topics,
    ):
        futures = []
        with pytest.raises(kind) as failed, topics.transaction(timeout=DEADLINE) as txn:
            futures.append(txn.write("t", "a"))
        assert errors_of(futures) <= {str(failed.value)}
        assert (kind is OutcomeUnknownError) == ("may be committed" in str(failed.value))
    assert server.calls == CALLS[: CALLS.index(call) + 1]


@pytest.mark.parametrize(
    ("call", "kind"), [("records", TransactionError), ("commit", OutcomeUnknownError)]
)
def test_an_agent_that_does_not_answer_is_given_up_after_the_time_out(
    topics_of: TopicsOf, call: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    # For requests, all but 50 ms of the transaction's time is over: no write comes too late.
    ahead = SimpleNamespace(monotonic=lambda: time.monotonic() + DEADLINE - 0.05)
    monkeypatch.setattr("oplogc.topics.calls.agents.time", ahead)
    with (
        TransactionServer() as server,
        topics_of(server.url, timeout=2 * DEADLINE, retry_for=0.05) as topics,
    ):
        server.hold(call)
        with topics.transaction(timeout=DEADLINE) as txn:
            for text in "a" if call == "records" else "":
                txn.write("t", text)
            with pytest.raises(kind, match="no answer in time"):
                txn.commit()


def test_an_exception_in_the_block_aborts_and_is_raised_again(topics_of: TopicsOf) -> None:
    futures = []
    with TransactionServer() as server, topics_of(server.url) as topics:

        def divide() -> None:
            with topics.transaction() as txn:
                for divisor in (2, 1, 0):
                    futures.append(txn.write("t", str(1 // divisor)))

        with pytest.raises(ZeroDivisionError):
            divide()
        sentence = f"transaction {TXN} is not committed: ZeroDivisionError in its block"
        assert errors_of(futures) == {sentence}
    assert "commit" not in server.calls
    assert server.calls.count("abort") == 1


def test_an_exception_is_raised_again_also_if_the_agent_is_away(topics_of: TopicsOf) -> None:
    with (
        TransactionServer(abort=[BUSY], repeat=True) as server,
        topics_of(server.url, backoff=FAST, retry_for=0.05) as topics,
        pytest.raises(ZeroDivisionError),
        topics.transaction(),
    ):
        _ = 1 / 0
