"""Requests for a shard at each endpoint that has shards: the answer confirms it, or refuses it."""

from typing import NamedTuple

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.kits.contract.wire import JSON, SSE, RawStream, Target

ECHO = "Oplog-Shard"
OPLOG_TOPIC = "/v1/namespaces/system/topics/oplog"
# A header that the short way does not know: the app answers.
LONG_WAY = {"X-Other": "1"}


class Endpoint(NamedTuple):
    method: str
    path: str

    def told(self, target: Target, query: str, others: dict[str, str]) -> str | None:
        """Return the echo of an answer with status 200."""
        path = f"{self.path}?{query}" if query else self.path
        is_stream = self.path in STREAMS or self.path.endswith("/stream")
        if is_stream and self.method == "GET":
            with RawStream(target, path, {**SSE, **others}) as stream:
                return stream.header(ECHO)
        headers = {**(SSE if is_stream else JSON if self.method == "POST" else {}), **others}
        body = b"{}" if self.method == "POST" else None
        reply = target.request(self.method, path, body, headers)
        assert reply.status == 200, reply
        return reply.header(ECHO)


STREAMS = ("/", "/ops")
ENDPOINTS = [
    ("GET", "/"),
    ("GET", "/ops"),
    ("HEAD", "/"),
    ("HEAD", "/ops"),
    ("GET", "/objects"),
    ("HEAD", "/objects"),
    ("GET", f"{OPLOG_TOPIC}/stream"),
    ("POST", f"{OPLOG_TOPIC}/poll"),
    ("GET", "{topic}/stream"),
    ("HEAD", "{topic}/stream"),
    ("POST", "{topic}/poll"),
]
BAD = [
    "shard=8/8",
    "shard=9/8",
    "shard=0/0",
    "shard=0/257",
    "shard=-1/8",
    "shard=%2B1/8",
    "shard=01/8",
    "shard=1/08",
    "shard=1",
    "shard=1/",
    "shard=/8",
    "shard=1/8/8",
    "shard=1/8,2/8",
    "shard=%201/8",
    "shard=1/8%0A",
    "shard=%D9%A3/8",
    "shard=1%D9%A3/64",
    "shard=1/1%D9%A3",
    "shard=%FF",
    "shard=1.0/8",
    f"shard=1/{'8' * 5_000}",
    "shard=1/2&shard=1/2",
    "shard=1/2&shard=0/2",
    "shard=&shard=1/2",
    "shards=1/2",
    "Shard=1/2",
]


@pytest.fixture
def endpoints(topic: TopicClient) -> list[Endpoint]:
    return [Endpoint(method, path.format(topic=topic.path)) for method, path in ENDPOINTS]


@on_one_store
def test_each_answer_confirms_its_shard_by_both_ways(
    target: Target, endpoints: list[Endpoint]
) -> None:
    for endpoint in endpoints:
        for others in ({}, LONG_WAY, {"Last-Event-ID": "0"}):
            for shard in ("0/1", "3/8", "255/256"):
                assert endpoint.told(target, f"shard={shard}", others) == shard, endpoint
            assert endpoint.told(target, "shard=3%2F8", others) == "3/8", endpoint
            for nothing in ("", "shard="):
                assert endpoint.told(target, nothing, others) is None, endpoint


@on_one_store
@pytest.mark.parametrize("query", BAD, ids=[query[:30] for query in BAD])
def test_a_bad_shard_is_refused_by_its_name(
    target: Target, endpoints: list[Endpoint], query: str
) -> None:
    for endpoint in endpoints:
        for others in ({}, LONG_WAY):
            headers = {**SSE, **(JSON if endpoint.method == "POST" else {}), **others}
            body = b"{}" if endpoint.method == "POST" else None
            path = f"{endpoint.path}?{query}"
            reply = target.request(endpoint.method, path, body, headers)
            assert (reply.status, reply.header(ECHO)) == (400, None), endpoint
            if endpoint.method != "HEAD":
                sentence = reply.problem()
                assert "shard" in sentence.replace("shards", ""), (endpoint, sentence)
                assert len(sentence) < 300, endpoint


@on_one_store
def test_the_shard_of_a_consumer_is_shown(target: Target) -> None:
    with target.follow(name="divided", shard="3/8", types="video"):
        filters = {each["name"]: each["filter"] for each in target.status()["consumers"]}
    assert filters["divided"]["shard"] == "3/8"
    with target.follow(name="whole"):
        filters = {each["name"]: each["filter"] for each in target.status()["consumers"]}
    assert "shard" not in filters["whole"]
