"""Several addresses for one client: a request goes to the next agent without a pause."""

import asyncio

import pytest

from oplogc.topics import AsyncTopics, TopicConsumer, TopicNotFound, Topics
from tests.integration.clients.topics.test_stream import IDS, block
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.streams import Streams
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer

NEVER = (600, 600)
OK = answer("200 OK", "")
BUSY = answer("503 Busy", '{"detail":"busy"}', "Retry-After: 600")
NONE = answer("200 OK", "[]")
GONE = answer("404 Not Found", '{"detail":"there is no topic default/t"}')


def dead() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_calls_and_messages_go_to_an_agent_that_answers(topics_of: TopicsOf) -> None:
    with (
        ScriptedServer([BUSY]) as busy,
        ScriptedServer([None]) as cut,
        ScriptedServer([OK]) as good,
    ):
        urls = [dead(), busy.url, cut.url, good.url]
        with topics_of(urls, backoff=NEVER) as topics:
            topics.publish("t", "a").result(DEADLINE)
            topics.publish("t", "b").result(DEADLINE)
            assert (topics.counters.delivered, topics.counters.retried) == (2, 0)
        good.answer_with(NONE)
        with topics_of(urls, backoff=NEVER) as topics:
            assert topics.poll("t").messages == ()
            assert topics.poll("t").messages == ()
        assert (len(busy.bodies), len(cut.bodies), len(good.bodies)) == (2, 2, 4)


def test_a_refusal_is_asked_of_no_other_agent(topics_of: TopicsOf) -> None:
    with (
        ScriptedServer([GONE]) as first,
        ScriptedServer([OK]) as second,
        topics_of([first.url, second.url]) as topics,
    ):
        with pytest.raises(TopicNotFound):
            topics.publish("t", "a").result(DEADLINE)
        with pytest.raises(TopicNotFound):
            topics.poll("t")
        assert (len(first.bodies), second.bodies) == (2, [])


def test_after_a_round_there_is_a_pause_and_the_first_agent_again(topics_of: TopicsOf) -> None:
    busy = answer("503 Busy", '{"detail":"busy"}')
    with ScriptedServer([busy, NONE]) as first, ScriptedServer([None]) as second:
        with topics_of([first.url, second.url], backoff=(0.01, 0.01)) as topics:
            topics.poll("t")
        assert (len(first.bodies), len(second.bodies)) == (2, 1)


async def test_a_stream_goes_on_at_the_next_agent_behind_its_last_message() -> None:
    with Streams(block(0), b"") as first, Streams(block(1)) as second:
        urls = [dead(), first.url, second.url]
        async with TopicConsumer(urls, "t", start="0", backoff=NEVER) as consumer:
            async with asyncio.timeout(DEADLINE):
                events = [await anext(consumer) for _ in range(2)]
        assert [each.event_id for each in events] == IDS[:2]
        assert second.last_ids() == IDS[:1]


def test_no_address_is_a_bad_argument() -> None:
    for make in (Topics, AsyncTopics):
        with pytest.raises(ValueError, match="url: give the address of an agent"):
            make([])
        with pytest.raises(ValueError, match="is no address of an agent"):
            make(["http://localhost", "gopher://h"])
    with pytest.raises(ValueError, match="url: give the address of an agent"):
        TopicConsumer([], "t")
