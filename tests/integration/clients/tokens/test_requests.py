"""Requests with a function for tokens."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oplogc import AsyncProducer, Consumer, FlushError, Producer
from oplogc.topics import (
    AsyncTopics,
    NotAllowed,
    TopicConsumer,
    Topics,
    TransactionError,
    UnavailableError,
)
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.producers import Producers
from tests.kits.clients.tokens import Issuer
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.contract.wire import wait_until
from tests.kits.servers.scripted import ScriptedServer, answer

FAST = (0.01, 0.02)
REFUSED = "the token was refused: look at token; the agent says: the token is invalid or has"


class AwayError(Exception):
    """The error of a function."""


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


def test_requests_use_one_token_until_it_is_refused(issuer: Issuer, topics_of: TopicsOf) -> None:
    with issuer.agent() as agent, topics_of(agent.url, token=issuer.later) as topics:
        topics.create("t")
        topics.publish("t", "a").result(DEADLINE)
        assert len(issuer.given) == 1
        issuer.end_tokens()
        topics.publish("t", "b").result(DEADLINE)
        assert [message.text for message in topics.poll("t").messages] == ["a", "b"]
        assert len(issuer.given) == 2


def test_a_second_refusal_of_a_request_is_an_error(
    issuer: Issuer, topics_of: TopicsOf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    issuer.plan(-1, -1)
    with issuer.agent() as agent, topics_of(agent.url, token=issuer) as topics:
        with pytest.raises(NotAllowed, match=REFUSED) as refused:
            topics.poll("t")
        assert (refused.value.status, len(issuer.given)) == (401, 2)
        assert topics.namespaces()  # with a third token
        assert len(issuer.given) == 3
    assert issuer.shows_none(caplog.text + str(refused.value))


def test_a_request_raises_the_error_of_the_function(issuer: Issuer, topics_of: TopicsOf) -> None:
    with issuer.agent() as agent, topics_of(agent.url, token=issuer) as topics:
        for call in (
            lambda: topics.poll("t"),
            lambda: topics.create("t"),
            lambda: topics.publish("t", "a").result(DEADLINE),
        ):
            for error in (AwayError("not now"), TimeoutError("too slow")):
                issuer.plan(error)
                with pytest.raises(type(error)) as raised:
                    call()
                assert str(raised.value) == str(error)
        topics.create("t")
        topics.publish("t", "a").result(DEADLINE)
        assert [message.text for message in topics.poll("t").messages] == ["a"]


def test_messages_that_nobody_waits_for_stay_when_the_function_fails(
    issuer: Issuer, topics_of: TopicsOf, caplog: pytest.LogCaptureFixture
) -> None:
    with issuer.agent() as agent, topics_of(agent.url, token=issuer, backoff=FAST) as topics:
        topics.create("t")
        issuer.end_tokens()
        issuer.plan(AwayError("not now"))
        topics.publish("t", "a", durable=False)
        wait_until(lambda: topics.counters.delivered == 1)
        assert [message.text for message in topics.poll("t").messages] == ["a"]
    assert "messages for default/t wait: not now" in caplog.text


def test_a_failure_of_the_function_ends_a_transaction(issuer: Issuer) -> None:
    def write(topics: Topics) -> None:
        with topics.transaction() as txn:
            issuer.end_tokens()
            issuer.plan(AwayError("not now"))
            future = txn.write("t", "a")
            assert isinstance(future.exception(DEADLINE), TransactionError)

    def commit(topics: Topics) -> None:
        with topics.transaction(timeout=900) as txn:
            txn.write("t", "b")
            wait_until(lambda: topics.get_transaction(txn.id).records == 1)
            issuer.end_tokens()
            issuer.plan(AwayError("not now"))

    with issuer.agent() as agent, Topics(agent.url, token=issuer) as topics:
        topics.create("t")
        for use in (write, commit):
            with pytest.raises(TransactionError, match="is not committed: not now") as failed:
                use(topics)
            assert isinstance(failed.value.__cause__, AwayError)
        assert topics.poll("t").messages == ()


def test_an_attempt_that_may_be_carried_out_is_not_forgotten_when_the_function_fails() -> None:
    given = ["one"]
    with (
        ScriptedServer([None, answer("401 Unauthorized", "")]) as server,
        Topics(server.url, token=given.pop, backoff=FAST) as topics,
        pytest.raises(UnavailableError, match="no token: IndexError") as failed,
    ):
        topics.create("t")
    assert failed.value.lost


def test_requests_at_the_same_time_share_a_fresh_token(issuer: Issuer) -> None:
    async def give() -> str:
        await asyncio.sleep(0)
        return issuer()

    async def ask(url: str) -> None:
        async with AsyncTopics(url, token=give) as topics:
            await asyncio.gather(*(topics.namespaces() for _ in range(5)))
            assert len(issuer.given) == 1
            issuer.end_tokens()
            await asyncio.gather(*(topics.namespaces() for _ in range(5)))
            assert len(issuer.given) == 2

    with issuer.agent() as agent:
        asyncio.run(ask(agent.url))


def test_a_producer_delivers_with_fresh_tokens(
    issuer: Issuer, produce: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    issuer.plan(AwayError("not now"), -1)
    with (
        issuer.agent() as agent,
        produce(agent.url, token=issuer.later, backoff=FAST) as producer,
    ):
        producer.send("insert", "video", "a")
        producer.flush()
        assert (producer.counters.retried, len(issuer.given)) == (1, 3)
        issuer.end_tokens()
        producer.send("insert", "video", "b")
        producer.flush()
        assert (producer.counters.delivered, len(issuer.given)) == (2, 4)
        issuer.end_tokens()
        issuer.plan(-1)
        producer.send("insert", "video", "c")
        with pytest.raises(FlushError, match=REFUSED):
            producer.flush()
        wait_until(lambda: producer.counters.delivered == 3)
    assert issuer.shows_none(caplog.text)


@pytest.mark.parametrize("make", [Consumer, Producer, AsyncProducer, Topics, AsyncTopics])
def test_a_token_and_a_password_exclude_each_other(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"^token and password exclude each other"):
        make("http://localhost:1", token="a", password="b")
    with pytest.raises(ValueError, match=r"^token and the password of the address exclude"):
        make("http://:b@localhost:1", token=lambda: "a")


def test_a_token_and_the_passwords_of_topics_exclude_each_other() -> None:
    with pytest.raises(ValueError, match=r"^token and ingest_password exclude each other"):
        Topics("http://localhost:1", token="a", ingest_password="b")
    with pytest.raises(ValueError, match=r"^token and password exclude each other"):
        TopicConsumer("http://localhost:1", "t", token="a", password="b")
