"""The publisher for foreign transactions, and polls with a snapshot, against an agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogc.topics import (
    AsyncTopics,
    BadRequestError,
    ForeignTransaction,
    Isolation,
    NotAllowed,
    OutcomeUnknownError,
    RefusedError,
    TopicNotFound,
    Topics,
    TransactionError,
    UnavailableError,
)
from tests.kits.agents.agent import Agent
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.proxies.chaos import ChaosProxy

FAST = (0.01, 0.05)
# As large as the pointers of Tephra: milliseconds times a million.
POINTER = 1_790_000_000_000_000_000


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """Return a name for the topics of a test with its parameter."""
    return str(request.node.name).replace("[", ".").rstrip("]")


def texts(topics: Topics, topic: str, transaction: ForeignTransaction | None = None) -> list[str]:
    """Return the messages for an uncommitted reader, or for a reader with a snapshot."""
    isolation: Isolation = "read_uncommitted" if transaction is None else "read_committed"
    found = topics.poll(topic, isolation=isolation, transaction=transaction).messages
    return [str(each.text) for each in found]


def committed(topics: Topics, topic: str) -> list[str]:
    found = topics.poll(topic).messages
    return [str(each.text) for each in found]


def kinds(topics: Topics, topic: str) -> list[tuple[str, int | None, str | None]]:
    return [(each.kind, each.pointer, each.state) for each in topics.entries(topic)]


def test_a_transaction_over_two_topics_is_read_by_its_snapshot_and_after_its_report(
    agent: Agent, topics_of: TopicsOf, namespace: str
) -> None:
    small, large = f"{namespace}/small", f"{namespace}/large"
    with topics_of(agent.url, batch_size=4) as topics:
        topics.create(small)
        topics.create(large)
        publisher = topics.foreign_publisher(max_buffered_bytes=60)
        transaction = ForeignTransaction(POINTER - 1, POINTER)
        publisher.start(transaction)
        numbers = [str(number) for number in range(30)]
        for number in numbers:
            publisher.publish(large, number)
        assert texts(topics, large) == []
        assert [each.published for each in topics.pointers.list(large)] == [False]
        publisher.publish(small, "a", "b")
        answers = publisher.persist()
        assert [(each.topic, len(each.places)) for each in answers] == [(large, 1), (small, 2)]
        topics.publish(small, "plain").result()
        assert texts(topics, large) == texts(topics, large, transaction) == numbers
        assert texts(topics, small) == texts(topics, small, transaction) == ["a", "b", "plain"]
        for other, seen in (
            (ForeignTransaction(POINTER - 1), []),
            (ForeignTransaction(POINTER, None, {POINTER}), []),
            (ForeignTransaction(POINTER, None, (), {POINTER}), ["plain"]),
            (ForeignTransaction(POINTER), ["a", "b", "plain"]),
        ):
            assert texts(topics, small, other) == seen
            held_by = topics.poll(small, transaction=other).held_by
            assert held_by == (POINTER if not seen else None)
        held = topics.poll(small, isolation="read_committed")
        assert (held.messages, held.held_by) == ((), POINTER)
        assert [each.pointer for each in topics.pointers.list(small)] == [POINTER]
        topics.pointers.commit(POINTER, [small, large])
        topics.pointers.commit(transaction, [small])
        assert committed(topics, small) == ["a", "b", "plain"]
        assert committed(topics, large) == numbers
        assert topics.pointers.list(small) == ()
        with pytest.raises(RefusedError, match="has committed"):
            topics.pointers.abort(POINTER, [small])
        with pytest.raises(RefusedError, match="has committed"):
            topics.pointers.publish(small, POINTER, "late")
        assert [kind for kind, *_ in kinds(topics, large)] == ["publish", "commit"]
        assert kinds(topics, small) == [
            ("direct", POINTER, "committed"),
            ("direct", POINTER, "committed"),
            ("message", None, None),
            ("commit", POINTER, "committed"),
        ]


def test_a_rolled_back_transaction_is_gone_for_every_reader_and_its_pointer_is_closed(
    agent: Agent, topics_of: TopicsOf, namespace: str
) -> None:
    small, large = f"{namespace}/small", f"{namespace}/large"
    with topics_of(agent.url) as topics:
        topics.create(small)
        topics.create(large)
        publisher = topics.foreign_publisher(max_buffered_bytes=60)
        for is_persisted in (True, False):
            pointer = POINTER + is_persisted
            publisher.start(pointer)
            publisher.publish(large, *["x" * 20] * 5)
            publisher.publish(small, "a")
            if is_persisted:
                publisher.persist()
                assert len(texts(topics, large)) == 5
            publisher.rollback()
            for topic in (small, large):
                for seen in (
                    texts(topics, topic),
                    texts(topics, topic, ForeignTransaction(pointer)),
                    committed(topics, topic),
                ):
                    assert seen == []
                assert topics.pointers.list(topic) == ()
            with pytest.raises(RefusedError, match="was aborted"):
                topics.pointers.store(large, pointer, "late")
        publisher.start(POINTER + 2)
        publisher.publish(small, "retried")
        publisher.persist()
        assert texts(topics, small, ForeignTransaction(POINTER + 2)) == ["retried"]


def test_the_agents_sentences_reach_the_caller(
    agent: Agent, topics_of: TopicsOf, namespace: str
) -> None:
    topic = f"{namespace}/t"
    with topics_of(agent.url) as topics:
        topics.create(topic)
        publisher = topics.foreign_publisher()
        publisher.start(1)
        publisher.publish(topic, "a")
        publisher.publish(f"{namespace}/none", "b")
        with pytest.raises(TopicNotFound, match="there is no topic"):
            publisher.persist()
        publisher.rollback()
        assert texts(topics, topic) == []
        topics.pointers.store(topic, 2, "a")
        with pytest.raises(BadRequestError, match="publish those first"):
            topics.pointers.publish(topic, 2, "b")
        place = topics.pointers.publish(topic, 2)
        assert topics.pointers.publish(topic, 2) == place
        topics.pointers.rollback(topic, 2, place)
        topics.pointers.rollback(topic, 2)
        with pytest.raises(BadRequestError, match="none is stored under pointer 2"):
            topics.pointers.publish(topic, 2)
        with pytest.raises(RefusedError):
            topics.pointers.publish("system/oplog", 3, '{"event":"insert","type":"t","id":"1"}')
        with pytest.raises(TopicNotFound):
            topics.pointers.commit(3, [topic, f"{namespace}/none"])


def test_a_publish_of_nothing_has_no_place_and_its_rollback_removes_nothing(
    agent: Agent, topics_of: TopicsOf, namespace: str
) -> None:
    topic = f"{namespace}/t"
    with topics_of(agent.url) as topics:
        topics.create(topic)
        nothing = topics.pointers.publish(topic, 2)
        assert nothing.places == ()
        topics.pointers.publish(topic, 2, "a")
        topics.pointers.rollback(topic, 2, nothing)
        assert texts(topics, topic) == ["a"]


def test_messages_that_left_with_their_topic_are_missed(
    agent: Agent, topics_of: TopicsOf, namespace: str
) -> None:
    topic = f"{namespace}/t"
    with topics_of(agent.url) as topics:
        topics.create(topic)
        publisher = topics.foreign_publisher(max_buffered_bytes=1)
        publisher.start(1)
        publisher.publish(topic, "a")  # stored: the buffer takes nothing
        topics.delete(topic)
        topics.create(topic)
        with pytest.raises(TransactionError, match="are gone; was the topic deleted"):
            publisher.persist()
        publisher.rollback()


def test_the_right_to_write_is_needed(tmp_path: Path) -> None:
    flags = ("--password", "geheim-read", "--ingest-password", "geheim-write")
    with Agent(tmp_path, *flags) as agent:
        with Topics(agent.url, password="geheim-read", ingest_password="geheim-write") as topics:
            topics.create("t")
            topics.pointers.publish("t", 1, "a")
            topics.pointers.store("t", 2, "a")
        with Topics(agent.url, password="geheim-read") as topics:
            assert [each.pointer for each in topics.pointers.list("t")] == [1, 2]
            assert len(topics.entries("t")) == 1
            publisher = topics.foreign_publisher()
            publisher.start(3)
            publisher.publish("t", "a")
            with pytest.raises(NotAllowed):
                publisher.persist()
            publisher.rollback()  # nothing was stored: nothing is sent
            with pytest.raises(NotAllowed):
                topics.pointers.rollback("t", 1)
            with pytest.raises(NotAllowed):
                topics.pointers.abort(1, ["t"])


def test_no_message_is_there_twice_or_after_its_rollback_over_lost_answers(
    agent: Agent, namespace: str
) -> None:
    topic = f"{namespace}/t"
    with Topics(agent.url) as topics:
        topics.create(topic)
    kept: list[str] = []
    lost = 0
    with (
        ChaosProxy(agent.port, seed=5, most_bytes=1200) as proxy,
        Topics(proxy.url, backoff=FAST) as topics,
    ):
        publisher = topics.foreign_publisher(max_buffered_bytes=30)
        for number in range(60):
            publisher.start(number)
            messages = [f"{number}.{each}" for each in range(1 + number % 8)]
            try:
                for message in messages:
                    publisher.publish(topic, message)
                publisher.persist()
            except OutcomeUnknownError:
                lost += 1
                publisher.rollback()
                continue
            except UnavailableError:
                pytest.fail("every other request is repeated")
            kept += messages
            topics.pointers.commit(number, [topic])
    assert lost >= 1
    with Topics(agent.url) as topics:
        assert texts(topics, topic) == committed(topics, topic) == kept
        assert topics.pointers.list(topic) == ()


async def test_a_committed_stream_is_held_until_the_report(agent: Agent, namespace: str) -> None:
    topic = f"{namespace}/t"
    async with AsyncTopics(agent.url) as topics:
        await topics.create(topic)
        async with topics.stream(topic, start="0", isolation="read_committed") as consumer:
            publisher = topics.foreign_publisher()
            await publisher.start(1)
            await publisher.publish(topic, "held")
            await publisher.persist()
            await topics.publish(topic, "plain")
            await publisher.start(2)
            await publisher.publish(topic, "gone")
            await publisher.persist()
            await publisher.rollback()
            await topics.publish(topic, "last")
            await topics.pointers.commit(1, [topic])
            got = [(await anext(consumer)).text for _ in range(3)]  # type: ignore[union-attr]
            assert got == ["held", "plain", "last"]
