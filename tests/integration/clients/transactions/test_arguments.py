"""Calls that a transaction refuses before it sends anything."""

from typing import Any

import pytest

from oplogc.topics import (
    AsyncTransaction,
    Message,
    MessageError,
    OperationError,
    Transaction,
    TransactionError,
)
from tests.integration.clients.scripted_transactions import (
    TXN,
    TransactionServer,
    id_of,
)
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.topics_of import TopicsOf, errors_of

CALLS = ["txns", "records", "commit", "abort"]


def test_a_bad_message_uses_no_lsn_and_the_transaction_goes_on(topics_of: TopicsOf) -> None:
    with TransactionServer() as server, topics_of(server.url) as topics:
        with topics.transaction() as txn:
            bad: list[tuple[str, Any, type[Exception], str]] = [
                ("t", 5, MessageError, "payload: must be text"),
                ("t", {"event": "insert"}, MessageError, "payload: must be text"),
                ("t", Message("a", "k" * 1025), MessageError, "key: is longer"),
                ("a/b/c", "a", ValueError, "is not a topic"),
                ("system/oplog", {"event": "insert", "type": "t"}, OperationError, "id: is req"),
                ("system/oplog", {"event": "x", "type": "t", "id": ""}, OperationError, "event: "),
                ("system/oplog", {"events": "insert"}, OperationError, "events: is not a member"),
            ]
            for topic, message, kind, sentence in bad:
                with pytest.raises(kind, match=sentence):
                    txn.write(topic, message)
            future = txn.write("t", "a")
        assert future.result(DEADLINE) == id_of(0)
    assert server.lsns == [[0]]


@pytest.mark.parametrize("kind", [AsyncTransaction, Transaction])
def test_id_and_time_of_a_transaction_are_read_only(
    kind: type[AsyncTransaction] | type[Transaction],
) -> None:
    for name in ("id", "expires_at"):
        with pytest.raises(AttributeError):
            setattr(object.__new__(kind), name, None)


def test_a_transaction_that_has_ended_takes_nothing(topics_of: TopicsOf) -> None:
    with TransactionServer() as server, topics_of(server.url) as topics:
        with topics.transaction() as txn:
            future = txn.write("t", "a")
            committed = txn.commit()
            assert future.result(DEADLINE) == id_of(0)
            with pytest.raises(ValueError, match="has ended"):
                txn.write("t", "b")
            with pytest.raises(ValueError, match="has ended"):
                txn.abort()
            assert txn.commit() is committed
        with topics.transaction() as txn:
            future = txn.write("t", "a")
            txn.abort()
            txn.abort()
            assert errors_of([future]) == {f"transaction {TXN} is not committed: it was aborted"}
            with pytest.raises(TransactionError, match="it was aborted"):
                txn.commit()
            with pytest.raises(TransactionError, match="it was aborted"):
                txn.write("t", "b")
        idle = topics.transaction()
        for call in ("commit", "abort", "__exit__"):
            arguments = (None, None, None) if call == "__exit__" else ()
            with pytest.raises(ValueError, match="has not begun"):
                getattr(idle, call)(*arguments)
    assert [server.calls.count(call) for call in CALLS if call != "records"] == [2, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": "a", "topic": "t"}, "group or topic, not both"),
        ({"group": "a/b"}, "'a/b' is not a group"),
        ({"group": ""}, "group: must not be empty"),
        ({"group": "x" * 245}, "is not a group"),
        ({"topic": "a/b/c"}, "is not a topic"),
        ({"timeout": 0}, "timeout: give seconds"),
        ({"timeout": 901}, "timeout: give seconds"),
        ({"timeout": "1"}, "timeout: give seconds"),
        ({"group": 5}, "5 is not a group"),
        ({"topic": 5}, "5 is not a topic"),
    ],
)
def test_a_bad_argument_is_told_before_anything_is_sent(
    topics_of: TopicsOf, options: dict[str, Any], sentence: str
) -> None:
    with TransactionServer() as server, topics_of(server.url) as topics:
        with pytest.raises(ValueError, match=sentence):
            topics.transaction(**options)
        topics.close()
        with pytest.raises(ValueError, match="closed"):
            topics.transaction()
    assert server.calls == []
