"""Calls about pointers, and polls with a snapshot, against scripted servers."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from oplogc.topics import (
    BadRequestError,
    Entry,
    ForeignTransaction,
    MessageError,
    OpenPointer,
    OutcomeUnknownError,
    Place,
    ProtocolError,
    Published,
    RefusedError,
)
from tests.integration.clients.scripted_pointers import MS, OK, PointerServer, key, published
from tests.integration.clients.scripted_transactions import refused
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.scripted import answer

FAST = (0.01, 0.05)
MAX_POINTER = (1 << 62) - 1
TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)
TEXT = "2026-01-31T12:00:00.000Z"


def shown(document: object) -> bytes:
    return answer("200 OK", json.dumps(document))


def test_a_poll_sends_the_snapshot_and_tells_the_pointer_that_holds_it(topics_of: TopicsOf) -> None:
    def held_by(text: str) -> bytes:
        return answer("200 OK", "[]", f"Oplog-Held-By: {text}")

    answers = [held_by(str(MAX_POINTER)), shown([]), held_by("x")]
    with PointerServer({"poll": answers}) as server, topics_of(server.url) as topics:
        snapshot = ForeignTransaction(-1, MAX_POINTER, {7}, (8, 9))
        held = topics.poll("t", transaction=snapshot, limit=5)
        assert (held, held.held_by) == (((), False), MAX_POINTER)
        assert topics.poll("t", isolation="read_committed").held_by is None
        assert topics.poll("t", transaction=ForeignTransaction(1)).held_by is None
        bad: list[tuple[Any, str]] = [
            (ForeignTransaction("x"), "read_pointer: must be a whole number of 64 bits"),  # type: ignore[arg-type]
            (ForeignTransaction(1 << 63), "read_pointer: must be"),
            (ForeignTransaction(1, True), "write_pointer: must be"),
            (ForeignTransaction(1, 2, [3, None]), r"in_progress\[1\]: must be"),  # type: ignore[list-item]
            (ForeignTransaction(1, 2, (), "34"), "invalid: must be a list of pointers"),  # type: ignore[arg-type]
        ]
        for transaction, sentence in bad:
            with pytest.raises(ValueError, match=sentence):
                topics.poll("t", transaction=transaction)
    both = {"startFrom": None, "inclusive": True, "limit": None}
    assert [each.json for each in server.requests] == [
        {
            **both,
            "limit": 5,
            "transaction": {
                "readPointer": -1,
                "writePointer": MAX_POINTER,
                "inProgress": [7],
                "invalid": [8, 9],
            },
        },
        {**both, "isolation": "read_committed"},
        {**both, "transaction": {"readPointer": 1, "inProgress": [], "invalid": []}},
    ]


def test_a_transaction_is_read_from_the_json_of_a_poll() -> None:
    given = {"readPointer": "5", "writePointer": None, "inProgress": ["-7"], "invalid": None}
    assert ForeignTransaction.of_json(given) == ForeignTransaction(5, None, (-7,), ())
    whole = ForeignTransaction(1, 2, (3,), (4, 5))
    assert ForeignTransaction.of_json(whole.as_json()) == whole
    bad: list[tuple[object, str]] = [
        (5, "give an object with readPointer"),
        ({}, "readPointer: is required"),
        ({"readPointer": 1, "read_pointer": 1}, "read_pointer: is not a member"),
        ({"readPointer": None}, "readPointer: must be a whole number of 64 bits"),
        ({"readPointer": 1, "writePointer": 1.5}, "writePointer: must be"),
        ({"readPointer": 1, "invalid": [1, "x"]}, r"invalid\[1\]: must be"),
        ({"readPointer": 1, "inProgress": {}}, "inProgress: must be a list of pointers"),
    ]
    for document, sentence in bad:
        with pytest.raises(ValueError, match=sentence):
            ForeignTransaction.of_json(document)


def test_single_calls_publish_store_and_roll_back(topics_of: TopicsOf) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        pointers = topics.pointers
        pointers.store("t", "5", "a", b"b")
        stored = pointers.publish("t", 5)
        assert stored == Published("default/t", 5, (Place(MS, 0),))
        direct = pointers.publish("default/t", ForeignTransaction(0, 5), "c", "d")
        assert direct.as_json() == {
            "transactionWritePointer": 5,
            "messages": [
                {"publishTimestamp": MS, "sequenceId": 1},
                {"publishTimestamp": MS, "sequenceId": 2},
            ],
        }
        pointers.rollback("t", 5, direct)
        pointers.rollback("t", 5, [key(0)])
        pointers.rollback("t", 5)
        p5 = {"transactionWritePointer": 5}
        assert [(each.verb, each.json) for each in server.requests] == [
            ("store", {**p5, "messages": ["a", "b"]}),
            ("publish", {**p5, "messages": []}),
            ("publish", {**p5, "messages": ["c", "d"]}),
            ("rollback", {**p5, "rollbackKeys": [key(1), key(2)]}),
            ("rollback", {**p5, "rollbackKeys": [key(0)]}),
            ("rollback", p5),
        ]


def test_a_rollback_of_very_many_keys_takes_several_requests(topics_of: TopicsOf) -> None:
    places = tuple(Place(MS, number % 65_536) for number in range(100_001))
    with PointerServer() as server, topics_of(server.url) as topics:
        topics.pointers.rollback("t", 5, Published("default/t", 5, places))
        assert [len(each.json["rollbackKeys"]) for each in server.requests] == [100_000, 1]


def test_bad_arguments_are_told_before_anything_is_sent(topics_of: TopicsOf) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        pointers: Any = topics.pointers
        other = Published("default/u", 5, (Place(MS, 0),))
        for call, arguments, sentence in (
            ("publish", ("t", -1, "a"), "-1 is not a pointer"),
            ("publish", ("a/b/c", 1, "a"), "is not a topic"),
            ("publish", ("t", 1, 5), "payload: must be text"),
            ("store", ("t", 1), "store: give at least one message"),
            ("store", ("t", 1 << 62, "a"), "is not a pointer"),
            ("rollback", ("t", 5, other), "published: is of another topic or pointer"),
            ("rollback", ("u", 6, other), "published: is of another topic or pointer"),
            ("rollback", ("t", 5, []), "give a list of keys, or None for everything"),
            ("rollback", ("t", 5, key(1)), "give a list of keys, or None for everything"),
            ("rollback", ("t", 5, [key(1), "x"]), "'x' is not a key"),
            ("commit", (5, []), "topics: give a list of 1 to 1,000 topics"),
            ("abort", (5, "t"), "topics: give a list of 1 to 1,000 topics"),
            ("abort", (5, ["a/b/c"]), "is not a topic"),
            ("list", ("t", 0), "limit: give a whole number, 1 to 1,000"),
            ("list", ("t", 1001), "limit: give a whole number, 1 to 1,000"),
        ):
            with pytest.raises(ValueError, match=sentence):
                getattr(pointers, call)(*arguments)
        for options in ({"after": -1}, {"after": True}, {"limit": 0}, {"limit": 1001}):
            with pytest.raises(ValueError, match=f"{next(iter(options))}: give"):
                topics.entries("t", **options)
    assert server.requests == []


def test_single_calls_raise_what_the_agent_said(topics_of: TopicsOf) -> None:
    decided = refused("409 Decided", "pointer 5 has committed in this topic")
    with (
        PointerServer(
            {
                "publish": [decided, None],
                "store": [refused("413 Large", "too many"), answer("200 OK", "<html>")],
                "commit": [decided],
            }
        ) as server,
        topics_of(server.url, backoff=FAST) as topics,
    ):
        with pytest.raises(RefusedError, match="has committed in this topic"):
            topics.pointers.publish("t", 5, "a")
        with pytest.raises(OutcomeUnknownError):
            topics.pointers.publish("t", 5, "a")
        with pytest.raises(BadRequestError, match="too many"):
            topics.pointers.store("t", 5, "a")
        with pytest.raises(OutcomeUnknownError, match="confirms nothing"):
            topics.pointers.store("t", 5, "a")
        with pytest.raises(MessageError, match="payload"):
            topics.pointers.store("t", 5, 7)  # type: ignore[arg-type]
        with pytest.raises(RefusedError, match="has committed in this topic"):
            topics.pointers.commit(5, ["t"])
        assert len(server.requests) == 5


def test_pointers_and_entries_are_listed(topics_of: TopicsOf) -> None:
    listed = [
        {"pointer": str(MAX_POINTER), "begun_at": TEXT, "expires_at": TEXT, "published": True}
    ]
    direct = {"offset": 7, "id": key(1), "time": TEXT, "kind": "direct", "bytes": 9}
    entries = [
        {**direct, "pointer": "5", "state": "timed out"},
        {**direct, "kind": "commit", "txn": str(1 << 62), "records": 3, "new": "member"},
        {**direct, "kind": "void", "voided": 2},
    ]
    with (
        PointerServer({"pointers": [shown(listed)], "entries": [shown(entries)]}) as server,
        topics_of(server.url) as topics,
    ):
        assert topics.pointers.list("t", 3) == (OpenPointer(MAX_POINTER, TIME, TIME, True),)
        assert topics.entries("t", after=6, limit=3) == (
            Entry(7, key(1), TIME, "direct", 9, pointer=5, state="timed out"),
            Entry(7, key(1), TIME, "commit", 9, txn=str(1 << 62), records=3),
            Entry(7, key(1), TIME, "void", 9, voided=2),
        )
        path = "/v1/namespaces/default/topics/t"
        assert [each.target for each in server.requests] == [
            f"{path}/pointers?limit=3",
            f"{path}/entries?after=6&limit=3",
        ]


@pytest.mark.parametrize(
    "wrong",
    [
        shown({}),
        shown([5]),
        shown([{"pointer": "x"}]),
        shown([{"offset": 1, "time": TEXT}]),
        shown([{"pointer": "5", "begun_at": "now", "expires_at": TEXT, "published": True}]),
        OK,
        answer("200 OK", "<html>"),
    ],
)
def test_an_answer_that_cannot_be_read_is_told(topics_of: TopicsOf, wrong: bytes) -> None:
    plan = {"pointers": [wrong], "entries": [wrong]}
    with PointerServer(plan) as server, topics_of(server.url) as topics:
        with pytest.raises(ProtocolError, match="is no agent with pointers"):
            topics.pointers.list("t")
        with pytest.raises(ProtocolError, match="is no agent with pointers"):
            topics.entries("t")


@pytest.mark.parametrize(
    "wrong",
    [
        published(6),
        published(6, 0),
        published(5, -1),
        published(5, 65_536),
        shown({"transactionWritePointer": "5", "messages": []}),
        shown({"transactionWritePointer": 5, "messages": 7}),
    ],
)
def test_a_publish_of_stored_messages_needs_an_answer_with_their_place(
    topics_of: TopicsOf, wrong: bytes
) -> None:
    with (
        PointerServer({"publish": [wrong]}) as server,
        topics_of(server.url) as topics,
        pytest.raises(ProtocolError, match="is no agent with pointers"),
    ):
        topics.pointers.publish("t", 5)
