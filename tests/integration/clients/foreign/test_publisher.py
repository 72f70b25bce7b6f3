"""The publisher for foreign transactions against scripted servers."""

import sys
from typing import Any, NamedTuple

import pytest

from oplogc.topics import (
    ForeignTransaction,
    Message,
    MessageError,
    Place,
    Published,
)
from tests.integration.clients.scripted_pointers import MS, PointerServer, key
from tests.integration.clients.scripted_transactions import refused
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.processes import forked
from tests.kits.servers.ports import free_port

FAST = (0.01, 0.05)
# As large as the pointers of Tephra: milliseconds times a million.
POINTER = 1_790_000_000_000_000_000
BUSY = refused("503 Busy", "not confirmed")
MANY = refused("429 Many", "too many")


class Tephra(NamedTuple):
    """A transaction of another system."""

    write_pointer: int


def test_each_topic_is_published_with_one_request_in_the_order_of_the_calls(
    topics_of: TopicsOf,
) -> None:
    with PointerServer() as server, topics_of(f"{server.url}/base") as topics:
        publisher = topics.foreign_publisher()
        assert publisher.pointer is None
        publisher.start(POINTER)
        assert publisher.pointer == POINTER
        publisher.publish("b", Message("é", "k", [("n", "v")], 60))
        publisher.publish("shop/a", b"\xff", "two")
        publisher.publish("b", "three")
        assert server.requests == []
        answers = publisher.persist()
        assert answers == (
            Published("default/b", POINTER, (Place(MS, 0), Place(MS, 1))),
            Published("shop/a", POINTER, (Place(MS, 2), Place(MS, 3))),
        )
        assert answers[1].keys == (key(2), key(3))
        assert publisher.persist() == answers
        assert [each.target for each in server.requests] == [
            "/base/v1/namespaces/default/topics/b/publish",
            "/base/v1/namespaces/shop/topics/a/publish",
        ]
        first = {"payload": "é", "key": "k", "headers": [["n", "v"]], "ttl": 60}
        assert [each.json for each in server.requests] == [
            {"transactionWritePointer": POINTER, "messages": [first, "three"]},
            {
                "transactionWritePointer": POINTER,
                "messages": [{"payload": "/w==", "encoding": "base64"}, "two"],
            },
        ]
        publisher.publish("b", "more")
        assert publisher.persist() == (
            answers[0],
            Published("default/b", POINTER, (Place(MS, 4),)),
            answers[1],
        )
        assert server.payloads("publish")[2:] == [("b", ["more"])]


@pytest.mark.parametrize(
    ("transaction", "pointer"),
    [
        (0, 0),
        (str(POINTER), POINTER),
        ((1 << 62) - 1, (1 << 62) - 1),
        (Tephra(POINTER), POINTER),
        (ForeignTransaction(7, 8), 8),
    ],
)
def test_a_transaction_is_its_pointer_or_has_one(
    topics_of: TopicsOf, transaction: Any, pointer: int
) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher()
        publisher.start(transaction)
        publisher.publish("t", "a")
        publisher.persist()
    assert server.requests[0].json["transactionWritePointer"] == pointer


@pytest.mark.parametrize(
    ("transaction", "sentence"),
    [
        (-1, "-1 is not a pointer: give a whole number from 0 to 4611686018427387903"),
        (1 << 62, "is not a pointer"),
        ("x", "'x' is not a pointer"),
        ("", "'' is not a pointer"),
        (True, "True is not a pointer"),
        (1.5, "float has no write pointer"),
        (None, "NoneType has no write pointer"),
        (ForeignTransaction(7), "ForeignTransaction has no write pointer"),
        (Tephra(-1), "-1 is not a pointer"),
    ],
)
def test_a_bad_transaction_is_refused_before_anything_is_sent(
    topics_of: TopicsOf, transaction: Any, sentence: str
) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher()
        with pytest.raises(ValueError, match=sentence):
            publisher.start(transaction)
        with pytest.raises(ValueError, match="no transaction: call start first"):
            publisher.publish("t", "a")
        with pytest.raises(ValueError, match="no transaction: call start first"):
            publisher.persist()
        publisher.rollback()
    assert server.requests == []


def test_messages_beyond_the_buffer_are_stored_in_order_and_published_together(
    topics_of: TopicsOf,
) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher(max_buffered_bytes=20)  # with their quotes
        publisher.start(POINTER)
        publisher.publish("a", "0" * 8)
        publisher.publish("b", "1" * 8)
        assert server.requests == []  # it is full
        publisher.publish("a", "2")
        assert server.calls == ["a store", "b store"]
        publisher.publish("c", "3")
        publisher.publish("b", "4" * 8, "5")
        assert server.calls[2:] == []
        publisher.publish("b", "6" * 8)
        publisher.publish("c", "7")
        answers = publisher.persist()
        publisher.persist()
        assert server.payloads("store") == [
            ("a", ["0" * 8, "2"]),
            ("b", ["1" * 8]),
            ("b", ["4" * 8, "5", "6" * 8]),
            ("c", ["3"]),
            ("c", ["7"]),
        ]
        assert server.payloads("publish") == [("a", []), ("b", []), ("c", [])]
        assert [answer.keys for answer in answers] == [(key(0),), (key(1),), (key(2),)]
        assert {each.json["transactionWritePointer"] for each in server.requests} == {POINTER}
        publisher.publish("a", "8")  # the stored ones are published: no need to store this one
        publisher.persist()
        assert server.payloads("publish")[3:] == [("a", ["8"])]


def test_messages_that_do_not_fit_one_request_are_stored(topics_of: TopicsOf) -> None:
    with PointerServer() as server, topics_of(server.url, batch_size=3) as topics:
        publisher = topics.foreign_publisher()
        publisher.start(POINTER)
        publisher.publish("t", *map(str, range(7)))
        publisher.persist()
        assert server.payloads("store") == [("t", [*"012"]), ("t", [*"345"]), ("t", [*"6"])]
        assert server.payloads("publish") == [("t", [])]
        publisher.start(POINTER + 1)
        publisher.publish("t", *"abc")
        publisher.persist()
        assert server.payloads("publish")[1:] == [("t", [*"abc"])]
    with PointerServer() as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher(max_buffered_bytes=10_000_000)
        publisher.start(POINTER)
        large = [letter * 600_000 for letter in "abc"]
        publisher.publish("t", *large)
        publisher.persist()
        assert server.payloads("store") == [("t", [each]) for each in large]
        assert server.payloads("publish") == [("t", [])]


def test_a_transaction_starts_only_when_the_one_before_is_settled(topics_of: TopicsOf) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher(max_buffered_bytes=20)
        publisher.start(1)
        publisher.start(2)  # there were no messages
        publisher.publish("t", "a")
        sentence = "the messages of pointer 2 are not persisted: persist them or roll them back"
        with pytest.raises(ValueError, match=sentence):
            publisher.start(3)
        publisher.publish("t", "b" * 30)
        assert server.calls == ["t store"]
        with pytest.raises(ValueError, match=sentence):
            publisher.start(3)
        publisher.persist()
        publisher.start(3)
        publisher.rollback()  # of pointer 3, which has no messages
        assert server.calls == ["t store", "t publish"]


@pytest.mark.parametrize("verb", ["publish", "store"])
def test_a_request_that_no_agent_has_read_or_that_may_come_later_is_sent_again(
    topics_of: TopicsOf, verb: str
) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with (
        PointerServer({verb: [MANY, MANY]}) as server,
        topics_of([dead, server.url], backoff=FAST) as topics,
    ):
        publisher = topics.foreign_publisher(max_buffered_bytes=20)
        publisher.start(POINTER)
        publisher.publish("t", "x" * (30 if verb == "store" else 3))
        publisher.persist()
    assert server.calls.count(f"t {verb}") == 3


def test_the_calls_that_are_exact_are_repeated_after_a_lost_answer(topics_of: TopicsOf) -> None:
    lost = [None, BUSY, MANY]
    with (
        PointerServer(dict.fromkeys(("publish", "rollback", "commit", "abort"), lost)) as server,
        topics_of(server.url, backoff=FAST) as topics,
    ):
        publisher = topics.foreign_publisher(max_buffered_bytes=20)
        publisher.start(POINTER)
        publisher.publish("t", "x" * 30)
        publisher.persist()
        publisher.rollback()
        topics.pointers.commit(POINTER, ["t", "shop/u", "default/t"])
        topics.pointers.abort(str(POINTER), ["t"])
        assert server.calls == [
            "t store",
            *["t publish"] * 4,
            *[f"{POINTER} abort"] * 4,
            *["t rollback"] * 4,
            *[f"{POINTER} commit"] * 4,
            f"{POINTER} abort",
        ]
        assert server.requests[-2].json == {"topics": ["default/t", "shop/u"]}


def test_a_bad_message_changes_nothing_and_the_transaction_goes_on(topics_of: TopicsOf) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher()
        publisher.start(1)
        bad: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
            ("t", ("a", 5), MessageError, "payload: must be text"),
            ("t", (Message("a", "k" * 1025),), MessageError, "key: is longer"),
            ("t", (), ValueError, "give at least one message"),
            ("a/b/c", ("a",), ValueError, "is not a topic"),
        ]
        for topic, messages, kind, sentence in bad:
            with pytest.raises(kind, match=sentence):
                publisher.publish(topic, *messages)
        publisher.publish("t", "good")
        publisher.persist()
        for size in (0, 1.5, True):
            with pytest.raises(ValueError, match="max_buffered_bytes must be a whole number"):
                topics.foreign_publisher(max_buffered_bytes=size)  # type: ignore[arg-type]
        topics.close()
        with pytest.raises(ValueError, match="closed"):
            topics.foreign_publisher()
    assert server.payloads("publish") == [("t", ["good"])]


def test_a_publisher_belongs_to_the_process_that_made_it() -> None:
    code = """
import os, sys
from oplogc.topics import Topics
with Topics(sys.argv[1]) as topics:
    publisher = topics.foreign_publisher()
    publisher.start(1)
    publisher.publish("t", "a")
    publisher.persist()
    if os.fork() == 0:
        for call in (publisher.persist, publisher.rollback, lambda: publisher.start(2)):
            try:
                call()
            except ValueError as error:
                print(error, flush=True)
        topics.pointers.store("t", 1, "child")
        os._exit(0)
    os.wait()
    publisher.rollback()
"""
    with PointerServer() as server:
        done = forked.run(
            [sys.executable, "-c", code, server.url],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        said = "the publisher belongs to the process that made it\n" * 3
        assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
        assert server.calls == ["t publish", "t store", "1 abort", "t rollback"]
