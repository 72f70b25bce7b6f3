"""Whole transactions of the Python client: one request, repeated until its answer comes."""

import json
from pathlib import Path
from typing import Any

import pytest

from oplogc.topics import BadRequestError, Committed, Message, ProtocolError, RefusedError
from oplogc.topics.messages.records import Writable
from tests.integration.clients.scripted_transactions import TransactionServer, id_of, refused
from tests.kits.agents.agent import Agent
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.scripted import answer

TXN = "4611686018427387905"
DONE = {"txn": TXN, "begin": "0b", "commit": "0c", "records": [id_of(0), None]}
ONCE = ("key", 3)
FAST = (0.01, 0.05)


def test_one_request_has_everything_and_is_repeated_without_an_answer(topics_of: TopicsOf) -> None:
    answers = [None, refused("503 Busy", "not confirmed"), answer("200 OK", json.dumps(DONE))]
    operation = {"event": "insert", "type": "video", "id": "1"}
    records: list[tuple[str, Writable]] = [
        ("shop/a", Message("a", "k")),
        ("system/oplog", operation),
    ]
    with TransactionServer(begin=answers) as server, topics_of(server.url, backoff=FAST) as topics:
        done = topics.commit_whole(records, ONCE, group="g", timeout=5, lease=("l", 2))
    assert done == Committed("0b", "0c", (id_of(0), None), TXN)
    first, *others = server.requests
    assert [each.body for each in others] == [first.body] * 2
    assert "oplog-lease: l; term=2" in first.head.lower()
    assert first.json == {
        "timeout_ms": 5_000,
        "group": "g",
        "once": {"key": "key", "number": 3},
        "records": [
            {"lsn": 0, "topic": "shop/a", "payload": "a", "key": "k"},
            {"lsn": 1, "topic": "system/oplog", "payload": operation},
        ],
    }


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (refused("409 Conflict", "number 3 of the key key is over"), RefusedError),
        (refused("412 Precondition Failed", "term 2 is over"), RefusedError),
        (refused("400 Bad Request", "records: is not a member of this request"), BadRequestError),
        (answer("200 OK", json.dumps({**DONE, "txn": "x"})), ProtocolError),
        (answer("200 OK", json.dumps({**DONE, "records": 5})), ProtocolError),
    ],
)
def test_a_refusal_is_raised(topics_of: TopicsOf, given: bytes, error: type[Exception]) -> None:
    with TransactionServer(begin=[given]) as server, topics_of(server.url) as topics:
        with pytest.raises(error):
            topics.commit_whole([("a", "b")], ONCE)
        assert len(server.requests) == 1


def test_nothing_is_sent_without_a_record_or_with_a_bad_number(topics_of: TopicsOf) -> None:
    with TransactionServer() as server, topics_of(server.url) as topics:
        nothing: Any = None
        for records, once in (
            ([], ONCE),
            ([("a", "b")], ("k", -1)),
            ([("a", "b")], nothing),
            ([("a/b/c", "d")], ONCE),
        ):
            with pytest.raises(ValueError, match=r"records|number|topic"):
                topics.commit_whole(records, once)
        assert server.requests == []


def test_an_agent_commits_it_once(topics_of: TopicsOf, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, topics_of(agent.url) as topics:
        topics.create("shop/a")
        first = topics.commit_whole([("shop/a", "one"), ("shop/a", "two")], ONCE)
        assert topics.commit_whole([("shop/a", "other")], ONCE) == first
        found = topics.poll("shop/a").messages
        assert [(each.id, each.text) for each in found] == [
            (first.records[0], "one"),
            (first.records[1], "two"),
        ]
        assert topics.get_transaction(first.txn).state == "committed"
        with pytest.raises(RefusedError, match="is over"):
            topics.commit_whole([("shop/a", "late")], ("key", 2))
