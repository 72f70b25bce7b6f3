"""Rollbacks of the publisher for foreign transactions, and the errors that require them."""

import asyncio
from functools import partial

import pytest

from oplogc.topics import (
    AsyncTopics,
    BadRequestError,
    NotAllowed,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    TopicNotFound,
    TransactionError,
    UnavailableError,
)
from tests.integration.clients.scripted_pointers import OK, PointerServer, key, published
from tests.integration.clients.scripted_transactions import refused
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import answer

FAST = (0.01, 0.05)
# As large as the pointers of Tephra: milliseconds times a million.
POINTER = 1_790_000_000_000_000_000
BUSY = refused("503 Busy", "not confirmed")
MANY = refused("429 Many", "too many")
PAGE = answer("200 OK", "<html>")
EVERYTHING = {"transactionWritePointer": POINTER}
NO_ROLLBACK = f"pointer {POINTER} must be rolled back: "


def test_a_rollback_names_what_was_published_and_takes_everything_that_is_only_stored(
    topics_of: TopicsOf,
) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher(max_buffered_bytes=20)
        publisher.start(POINTER)
        publisher.publish("buffered", "a")
        publisher.rollback()
        assert server.requests == []
        publisher.start(POINTER)
        publisher.publish("direct", "a", "b")
        publisher.persist()
        publisher.publish("direct", "c")
        publisher.publish("stored", "x" * 30)
        publisher.publish("kept", "d")
        del server.requests[:]
        publisher.rollback()
        assert server.calls == [
            f"{POINTER} abort",
            "direct rollback",
            f"{POINTER} abort",
            "stored rollback",
        ]
        assert [each.json for each in server.requests] == [
            {"topics": ["default/direct"]},
            EVERYTHING,
            {"topics": ["default/stored"]},
            EVERYTHING,
        ]
        publisher.start(POINTER)
        publisher.publish("direct", "a", "b")
        publisher.persist()
        publisher.publish("direct", "c")
        publisher.persist()
        publisher.publish("direct", "d")
        del server.requests[:]
        publisher.rollback()
        publisher.rollback()
        assert [each.json for each in server.requests] == [
            {"topics": ["default/direct"]},
            {**EVERYTHING, "rollbackKeys": [key(2), key(3)]},
            {**EVERYTHING, "rollbackKeys": [key(4)]},
        ]
        assert publisher.pointer is None
        with pytest.raises(ValueError, match="no transaction"):
            publisher.publish("direct", "e")


@pytest.mark.parametrize(
    "lost",
    [None, BUSY, PAGE, answer("204 No Content"), published(1, 0), published(POINTER, 0, 1)],
    ids=["cut", "503", "page", "204", "another pointer", "other messages"],
)
@pytest.mark.parametrize("verb", ["publish", "store"])
def test_after_a_lost_answer_nothing_is_sent_again_and_a_rollback_closes_the_pointer(
    topics_of: TopicsOf, verb: str, lost: bytes | None
) -> None:
    with (
        PointerServer({verb: [lost]}, repeat=True) as server,
        topics_of(server.url, backoff=FAST) as topics,
    ):
        publisher = topics.foreign_publisher(max_buffered_bytes=20)
        publisher.start(POINTER)
        publisher.publish("t", "x")
        send = publisher.persist if verb == "publish" else partial(publisher.publish, "t", "x" * 30)
        with pytest.raises(OutcomeUnknownError, match=f"{verb}: the messages may be stored"):
            send()
        for call in (publisher.persist, lambda: publisher.publish("u", "late")):
            with pytest.raises(TransactionError, match=NO_ROLLBACK) as failed:
                call()
            assert isinstance(failed.value.__cause__, OutcomeUnknownError)
        with pytest.raises(ValueError, match="are not persisted"):
            publisher.start(POINTER + 1)
        assert server.calls == [f"t {verb}"]
        publisher.rollback()
        assert server.calls[1:] == [f"{POINTER} abort", "t rollback"]
        assert [each.json for each in server.requests[1:]] == [
            {"topics": ["default/t"]}, EVERYTHING
        ]  # fmt: skip
        publisher.start(POINTER + 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad", BadRequestError),
        ("401 No", NotAllowed),
        ("404 Unknown", TopicNotFound),
        ("409 Decided", RefusedError),
        ("413 Large", BadRequestError),
    ],
)
@pytest.mark.parametrize("verb", ["publish", "store"])
def test_a_refusal_is_raised_at_once_and_leaves_only_the_rollback(
    topics_of: TopicsOf, verb: str, status: str, kind: type[RefusedError]
) -> None:
    with (
        PointerServer({verb: [OK, refused(status, "the reason")][verb == "publish" :]}) as server,
        topics_of(server.url, batch_size=1) as topics,
    ):
        publisher = topics.foreign_publisher()
        publisher.start(POINTER)
        publisher.publish("stored", *("ab" if verb == "store" else "a"))
        publisher.publish("after", "b")
        with pytest.raises(kind, match="the reason") as failed:
            publisher.persist()
        assert failed.value.status == int(status[:3])
        with pytest.raises(TransactionError, match=f"{NO_ROLLBACK}.*the reason"):
            publisher.persist()
        del server.requests[:]
        publisher.rollback()
        # A refused publish has left nothing behind, and the first batch is stored.
        left = [f"{POINTER} abort", "stored rollback"]
        assert server.calls == (left if verb == "store" else [])


def test_an_agent_that_stays_away_leaves_only_the_rollback(topics_of: TopicsOf) -> None:
    with topics_of(f"http://127.0.0.1:{free_port()}", backoff=FAST, retry_for=0.02) as topics:
        publisher = topics.foreign_publisher()
        publisher.start(POINTER)
        publisher.publish("t", "a")
        with pytest.raises(UnavailableError) as failed:
            publisher.persist()
        assert not isinstance(failed.value, OutcomeUnknownError)
        with pytest.raises(TransactionError, match=NO_ROLLBACK):
            publisher.persist()
        publisher.rollback()  # nothing has left: no agent is needed
        assert publisher.pointer is None


def test_a_rollback_that_failed_is_repeated_for_the_remaining_topics(topics_of: TopicsOf) -> None:
    def each_of(topics: str) -> list[str]:
        return [call for topic in topics for call in (f"{POINTER} abort", f"{topic} rollback")]

    gone = refused("404 Unknown", "there is no topic")
    with (
        PointerServer({"rollback": [OK, refused("403 No", "the reason"), gone, MANY]}) as server,
        topics_of(server.url, backoff=(60, 60), retry_for=1) as topics,
    ):
        publisher = topics.foreign_publisher()
        publisher.start(POINTER)
        for topic in "abcde":
            publisher.publish(topic, "x")
        publisher.persist()
        del server.requests[:]
        with pytest.raises(UnavailableError):
            publisher.rollback()
        assert server.calls == each_of("abcd")
        assert publisher.pointer == POINTER
        with pytest.raises(TransactionError, match=f"{NO_ROLLBACK}its rollback is not complete"):
            publisher.publish("a", "x")
        publisher.rollback()
        assert server.calls[8:] == each_of("bde")
        assert publisher.pointer is None


@pytest.mark.parametrize("verb", ["abort", "rollback"])
def test_a_rollback_at_an_agent_that_does_not_know_the_path_fails(
    topics_of: TopicsOf, verb: str
) -> None:
    unknown = refused("404 Unknown", "there is nothing at /v1")
    with PointerServer({verb: [unknown]}) as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher()
        publisher.start(POINTER)
        publisher.publish("a", "x")
        publisher.persist()
        with pytest.raises(TopicNotFound, match="there is nothing at /v1"):
            publisher.rollback()
        assert publisher.pointer == POINTER
        del server.requests[:]
        publisher.rollback()
        assert server.calls == [f"{POINTER} abort", "a rollback"]
        assert publisher.pointer is None


def test_a_topic_that_refuses_its_rollback_does_not_keep_the_others(topics_of: TopicsOf) -> None:
    with (
        PointerServer(
            {
                "publish": [published(1, 0), None],
                "abort": [OK, refused("409 Decided", "it has timed out")],
                "rollback": [refused("403 No", "the reason")],
            }
        ) as server,
        topics_of(server.url) as topics,
    ):
        publisher = topics.foreign_publisher()
        publisher.start(1)
        publisher.publish("a", "x")
        publisher.publish("b", "x")
        with pytest.raises(OutcomeUnknownError):
            publisher.persist()
        with pytest.raises(NotAllowed, match="the reason"):
            publisher.rollback()
        # A pointer that is decided in another way takes no more messages, either.
        assert server.calls[2:] == ["1 abort", "a rollback", "1 abort", "b rollback"]
        publisher.rollback()
        assert server.calls[6:] == ["1 abort", "a rollback"]


def test_an_abort_that_is_refused_is_told(topics_of: TopicsOf) -> None:
    with (
        PointerServer({"publish": [None], "abort": [refused("403 No", "the reason")]}) as server,
        topics_of(server.url) as topics,
    ):
        publisher = topics.foreign_publisher()
        publisher.start(1)
        publisher.publish("a", "x")
        with pytest.raises(OutcomeUnknownError):
            publisher.persist()
        with pytest.raises(NotAllowed, match="the reason"):
            publisher.rollback()
        publisher.rollback()
        assert server.calls == ["a publish", "1 abort", "1 abort", "a rollback"]


async def test_a_call_that_was_cancelled_leaves_only_the_rollback() -> None:
    with PointerServer() as server:
        server.hold("publish")
        async with AsyncTopics(server.url) as topics:
            publisher = topics.foreign_publisher()
            await publisher.start(1)
            await publisher.publish("t", "a")
            persisting = asyncio.create_task(publisher.persist())
            while not server.requests:
                await asyncio.sleep(0)
            persisting.cancel()
            await asyncio.wait({persisting})
            with pytest.raises(TransactionError, match="a request was interrupted"):
                await publisher.persist()
            await publisher.rollback()
        assert server.calls == ["t publish", "1 abort", "t rollback"]


def test_a_publish_of_stored_messages_that_nobody_can_read_closes_the_pointer(
    topics_of: TopicsOf,
) -> None:
    with PointerServer({"publish": [PAGE]}) as server, topics_of(server.url) as topics:
        publisher = topics.foreign_publisher(max_buffered_bytes=1)
        publisher.start(1)
        publisher.publish("t", "a")
        with pytest.raises(ProtocolError, match="is no agent with pointers"):
            publisher.persist()
        publisher.rollback()
        assert server.calls == ["t store", "t publish", "1 abort", "t rollback"]


def test_a_rollback_after_a_lost_answer_to_the_report_takes_back_nothing_that_has_committed(
    topics_of: TopicsOf,
) -> None:
    """The application rolls back because its commit raised, although the agent has committed."""
    decided = refused("409 Decided", f"pointer {POINTER} has committed in this topic")
    with (
        PointerServer({"commit": [None, None], "abort": [decided] * 2}) as server,
        topics_of(server.url, backoff=(60, 60), retry_for=0.1) as topics,
    ):
        publisher = topics.foreign_publisher()
        publisher.start(POINTER)
        publisher.publish("a", "x")
        publisher.publish("b", "x")
        publisher.persist()
        with pytest.raises(UnavailableError):
            topics.pointers.commit(POINTER, ["a", "b"])
        for _ in range(2):
            with pytest.raises(TransactionError, match=f"pointer {POINTER} has committed, so noth"):
                publisher.rollback()
        assert "rollback" not in [each.verb for each in server.requests]
        publisher.start(POINTER + 1)
        publisher.publish("a", "x")
        assert len(publisher.persist()) == 1


@pytest.mark.parametrize("abort", [None, refused("409 Decided", "it is decided in this topic")])
def test_without_knowing_the_decision_a_rollback_removes_nothing_and_can_be_repeated(
    topics_of: TopicsOf, abort: bytes | None
) -> None:
    with (
        PointerServer({"abort": [abort]}) as server,
        topics_of(server.url, backoff=(60, 60), retry_for=0.1) as topics,
    ):
        publisher = topics.foreign_publisher()
        publisher.start(POINTER)
        publisher.publish("a", "x")
        publisher.persist()
        expected = OutcomeUnknownError if abort is None else TransactionError
        with pytest.raises(expected, match=f"not known whether pointer {POINTER} has committed"):
            publisher.rollback()
        assert server.calls == ["a publish", f"{POINTER} abort"]
        with pytest.raises(ValueError, match="are not persisted"):
            publisher.start(POINTER + 1)
        publisher.rollback()
        assert server.calls[2:] == [f"{POINTER} abort", "a rollback"]


def test_a_report_without_an_answer_is_repeated_and_a_commit_before_is_success(
    topics_of: TopicsOf,
) -> None:
    with (
        PointerServer({"commit": [None, BUSY]}) as server,
        topics_of(server.url, backoff=FAST) as topics,
    ):
        topics.pointers.commit(POINTER, ["a"])
        assert server.calls == [f"{POINTER} commit"] * 3


async def test_the_rollback_of_an_event_loop_takes_back_nothing_that_has_committed() -> None:
    decided = refused("409 Decided", "default/t: pointer 1 has committed in this topic")
    with PointerServer({"abort": [decided]}) as server:
        async with AsyncTopics(server.url) as topics:
            publisher = topics.foreign_publisher()
            await publisher.start(1)
            await publisher.publish("t", "a")
            await publisher.persist()
            with pytest.raises(TransactionError, match="pointer 1 has committed"):
                await publisher.rollback()
        assert server.calls == ["t publish", "1 abort"]


def test_a_forced_rollback_says_so_in_the_address(topics_of: TopicsOf) -> None:
    with PointerServer() as server, topics_of(server.url) as topics:
        topics.pointers.rollback("t", 1, force=True)
        assert [each.query for each in server.requests] == [{"force": ["true"]}]
