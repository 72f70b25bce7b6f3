"""Streams with a function for tokens."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oplogc import Consumer, RefusedError
from oplogc.topics import NotAllowed, ReceivedMessage, TopicConsumer, Topics
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.examples import videos
from tests.kits.clients.tokens import LIFE, Issuer

FAST = (0.01, 0.02)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


def post(agent: Agent, issuer: Issuer, first: int, count: int) -> None:
    assert agent.post(videos(first, count), issuer.authorize()) == 200


def ids(events: list[Any]) -> list[str]:
    return [event.id for event in events if event.event == "insert"]


def test_a_stream_goes_on_with_the_next_token_and_loses_nothing(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with issuer.agent() as agent:
        post(agent, issuer, 0, 5)
        issuer.between = lambda: post(agent, issuer, 5, 5)
        with Consumer(agent.url, start="0", token=issuer, backoff=FAST) as consumer:
            events = []
            for event in consumer:
                events.append(event)
                if event.event == "live":
                    issuer.end_tokens()
                if len(ids(events)) == 10:
                    consumer.stop()
        assert (len(issuer.given), consumer.connections) == (2, 2)
    assert ids(events) == [each["id"] for each in videos(0, 10)]
    assert [event.event for event in events if event.event == "reset"] == ["reset"]
    assert "the agent ended the stream" in caplog.text
    assert "401" not in caplog.text
    assert issuer.shows_none(caplog.text + repr(vars(consumer)))


def test_an_async_function_gives_the_tokens_of_a_consumer_in_an_event_loop(
    issuer: Issuer,
) -> None:
    async def follow(url: str) -> list[str]:
        events: list[Any] = []
        async with Consumer(url, start="0", token=issuer.later, backoff=FAST) as consumer:
            async for event in consumer:
                events.append(event)
                if event.event == "live":
                    issuer.end_tokens()
                if len(ids(events)) == 6:
                    consumer.stop()
        return ids(events)

    with issuer.agent() as agent:
        post(agent, issuer, 0, 3)
        issuer.between = lambda: post(agent, issuer, 3, 3)
        assert asyncio.run(follow(agent.url)) == [each["id"] for each in videos(0, 6)]
    assert len(issuer.given) == 2


def test_a_stream_of_a_topic_goes_on_with_the_next_token(issuer: Issuer) -> None:
    with (
        issuer.agent() as agent,
        Topics(agent.url, token=issuer.token(2 * LIFE)) as topics,
        TopicConsumer(agent.url, "t", start="0", token=issuer, backoff=FAST) as consumer,
    ):
        topics.create("t")
        topics.publish("t", "0", "1").result(DEADLINE)
        issuer.between = lambda: topics.publish("t", "2", "3").result(DEADLINE)
        texts = []
        for event in consumer:
            assert isinstance(event, ReceivedMessage)
            texts.append(event.text)
            if len(texts) == 2:
                issuer.end_tokens()
            if len(texts) == 4:
                consumer.stop()
    assert (texts, len(issuer.given)) == (["0", "1", "2", "3"], 2)


def test_a_refused_token_and_a_failure_of_the_function_are_told_and_tried_again(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.plan(RuntimeError("the issuer\nis away"), -1, RefusedError(403, "not you"))
    with (
        issuer.agent() as agent,
        Consumer(agent.url, start="0", token=issuer, backoff=FAST) as consumer,
    ):
        assert next(iter(consumer)).event == "reset"
    assert len(issuer.given) == 4
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert "no token: RuntimeError: the issuer\\nis away; trying again in 0.0 s" in told[0]
    assert "the token was refused: look at token; the agent says: the token is invalid" in told[1]
    assert "no token: RefusedError: not you (HTTP 403); trying again" in told[2]
    assert issuer.shows_none(caplog.text)


def test_a_function_that_hangs_is_tried_again(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    async def give() -> str:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return issuer()

    with issuer.agent() as agent:
        options: Any = {"start": "0", "token": give, "timeout": 0.5, "backoff": FAST}
        with Consumer(agent.url, **options) as consumer:
            assert next(iter(consumer)).event == "reset"
    assert "no token within 0.5 s; trying again" in caplog.text


def test_a_constant_token_opens_a_stream_and_its_refusal_ends_it(issuer: Issuer) -> None:
    with issuer.agent() as agent:
        with Consumer(agent.url, start="0", token=issuer.token()) as consumer:
            assert next(iter(consumer)).event == "reset"
        ended = issuer.token(-1)
        with Consumer(agent.url, token=ended) as consumer, pytest.raises(RefusedError) as refused:
            next(iter(consumer))
        with TopicConsumer(agent.url, "t", token=ended) as topic, pytest.raises(NotAllowed):
            next(iter(topic))
    assert str(refused.value).startswith("the token was refused: look at token; the agent says: ")
    assert ended not in repr(refused.value)


@pytest.mark.parametrize("token", ["", " ", "two words", "tür", "line\r\nX-Other: 1", 5, b"bytes"])
def test_text_that_is_no_token_is_refused_and_not_shown(
    token: Any, caplog: pytest.LogCaptureFixture
) -> None:
    makers: list[Callable[..., Any]] = [Consumer, Topics]
    for make in makers:
        with pytest.raises(ValueError, match=r"^token: give printable ASCII text"):
            make("http://localhost:1", token=token)
    with Consumer("http://localhost:1", token=lambda: token, backoff=FAST) as consumer:

        async def try_once() -> None:
            async with asyncio.timeout(0.2):
                await anext(consumer)

        with pytest.raises(TimeoutError):
            asyncio.run(try_once())
    message = "no token: ValueError: token: give printable ASCII text without a space"
    assert message in caplog.text
    assert "two words" not in caplog.text
