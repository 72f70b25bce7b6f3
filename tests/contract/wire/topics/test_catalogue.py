"""The catalogue of topics: each request with each of its errors."""

from typing import Any

import pytest

from tests.contract.wire.store_kinds import on_each_store, on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient, fresh_namespace
from tests.kits.contract.wire import Target

WEEK = {"ttl": "604800"}


def test_a_topic_is_created_once(target: Target) -> None:
    topic = TopicClient(target)
    reply = topic.request("PUT")
    assert (reply.status, reply.json) == (200, {"name": "t", "properties": WEEK})
    again = topic.request("PUT")
    assert again.status == 409
    assert topic.name in again.problem()


@pytest.mark.parametrize("body", [b"", b"{}", b" {} ", {"ttl": None}])
def test_without_a_ttl_a_topic_has_the_default(target: Target, body: Any) -> None:
    assert TopicClient(target).request("PUT", body=body).json["properties"] == WEEK


@on_one_store
@pytest.mark.parametrize("ttl", [3600, "3600", 3600.0])
def test_a_ttl_is_a_number_or_a_numeric_string(target: Target, ttl: Any) -> None:
    topic = TopicClient(target).create({"ttl": ttl})
    assert topic.request("GET").json == {"name": "t", "properties": {"ttl": "3600"}}


@on_one_store
@pytest.mark.parametrize("path", ["", "/properties"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ttl": 0}, "ttl"),
        ({"ttl": -1}, "ttl"),
        ({"ttl": "1.5"}, "ttl"),
        ({"ttl": 1.5}, "ttl"),
        ({"ttl": "soon"}, "ttl"),
        ({"ttl": True}, "ttl"),
        ({"ttl": 101 * 365 * 86_400}, "ttl"),
        ({"max_bytes": 1048575}, "max_bytes"),
        ({"max_bytes": "1MB"}, "max_bytes"),
        ({"max_bytes": 1e7}, "max_bytes"),
        ({"max_bytes": True}, "max_bytes"),
        ({"max_bytes": 1 << 63}, "max_bytes"),
        ({"size": 5}, "size"),
        ([], "body"),
        (b"{", "body"),
        (b"\xff", "body"),
    ],
)
def test_bad_properties_are_named(target: Target, path: str, body: Any, field: str) -> None:
    topic = TopicClient(target)
    if path:
        topic.create()
    reply = topic.request("PUT", path, body)
    assert reply.status == 400
    assert reply.problem().startswith(f"{field}: ")


def test_properties_are_replaced_and_an_absent_one_is_the_default(target: Target) -> None:
    topic = TopicClient(target).create({"ttl": 5})
    reply = topic.request("PUT", "/properties", {"ttl": 7})
    assert (reply.status, reply.json) == (200, {"name": "t", "properties": {"ttl": "7"}})
    assert topic.request("PUT", "/properties", {}).json["properties"] == WEEK
    assert topic.request("GET").json["properties"] == WEEK


@pytest.mark.parametrize("given", [1048576, "1048576"])
def test_a_bound_in_bytes_is_shown_and_removed(target: Target, given: Any) -> None:
    topic = TopicClient(target).create({"max_bytes": given})
    bounded = {**WEEK, "max_bytes": "1048576"}
    assert topic.request("GET").json["properties"] == bounded
    assert target.request("GET", topic.topics).json[0]["properties"] == bounded
    assert topic.request("PUT", "/properties", {"ttl": None}).json["properties"] == WEEK
    reply = topic.request("PUT", "/properties", {"ttl": 60, "max_bytes": 2097152})
    assert reply.json["properties"] == {"ttl": "60", "max_bytes": "2097152"}
    assert topic.request("GET").json["properties"] == reply.json["properties"]


def test_topics_of_a_namespace_are_listed_by_name(target: Target) -> None:
    namespace = fresh_namespace()
    for name in ("b", "B.-_9", "a"):
        TopicClient(target, f"{namespace}/{name}").create()
    reply = target.request("GET", TopicClient(target, f"{namespace}/a").topics)
    assert reply.status == 200
    assert [each["name"] for each in reply.json] == ["B.-_9", "a", "b"]


def test_an_unused_namespace_has_no_topics(target: Target) -> None:
    reply = target.request("GET", TopicClient(target).topics)
    assert (reply.status, reply.json) == (200, [])


def test_a_deleted_topic_is_gone_and_created_again_it_is_empty(target: Target) -> None:
    topic = TopicClient(target).create()
    topic.store("old")
    (old,) = topic.polled()
    reply = topic.request("DELETE")
    assert (reply.status, reply.body) == (200, b"")
    assert topic.request("DELETE").status == 404
    assert topic.publish("x").status == 404
    topic.create()
    assert topic.polled() == []
    topic.store("new")
    (new,) = topic.polled()
    assert (new["payload"], new["id"] > old["id"]) == ("new", True)
    gap = topic.poll(old["id"], inclusive=False)
    assert (gap.json, gap.header("Oplog-Gap")) == ([new], "1")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("PUT", "/properties", {}),
        ("POST", "/publish", {"messages": ["a"]}),
        ("POST", "/poll", {}),
    ],
)
def test_an_unknown_topic_is_not_found(target: Target, method: str, path: str, body: Any) -> None:
    topic = TopicClient(target)
    reply = topic.request(method, path, body, {"Content-Type": "application/json"})
    assert reply.status == 404
    assert topic.name in reply.problem()


@on_one_store
@pytest.mark.parametrize(
    ("namespace", "topic", "field"),
    [
        ("n", "%2E", "topic"),
        ("n", "%2e%2e", "topic"),
        ("n", "a%20b", "topic"),
        ("n", "%C3%A9", "topic"),
        ("n", "a" * 250, "topic"),
        ("n%3A", "t", "namespace"),
        ("a" * 250, "t", "namespace"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_bad_name_is_refused(
    target: Target, method: str, namespace: str, topic: str, field: str
) -> None:
    reply = target.request(method, f"/v1/namespaces/{namespace}/topics/{topic}")
    assert reply.status == 400
    assert reply.problem().startswith(f"{field}: ")


def test_the_longest_name_is_a_name(target: Target) -> None:
    topic = TopicClient(target, f"{fresh_namespace()}/{'a' * 249}").create()
    topic.store("x")
    assert topic.payloads() == ["x"]


@on_one_store
@pytest.mark.parametrize("name", ["oplog", "other"])
@pytest.mark.parametrize(("method", "path"), [("PUT", ""), ("PUT", "/properties"), ("DELETE", "")])
def test_the_namespace_system_is_reserved(
    target: Target, method: str, path: str, name: str
) -> None:
    reply = TopicClient(target, f"system/{name}").request(method, path)
    assert reply.status == 409
    assert "reserved" in reply.problem()


@on_each_store
def test_the_oplog_shows_its_size(target: Target) -> None:
    oplog = TopicClient(target, OPLOG)
    size = str(target.status()["store"]["max_bytes"])
    shown = {"name": "oplog", "properties": {"bytes": size}}
    assert oplog.request("GET").json == shown
    assert target.request("GET", oplog.topics).json == [shown]
    assert TopicClient(target, "system/other").request("GET").status == 404


@on_one_store
def test_other_methods_and_paths_say_which_there_are(target: Target) -> None:
    topic = TopicClient(target)
    reply = topic.request("POST")
    assert reply.status == 405
    assert reply.header("Allow") == "DELETE, GET, HEAD, OPTIONS, PUT"
    assert reply.problem()
    assert topic.request("GET", "/nothing").status == 404


def test_each_get_has_a_head(target: Target) -> None:
    topic = TopicClient(target).create()
    for path in (topic.path, topic.topics):
        head, get = (target.request(method, path) for method in ("HEAD", "GET"))
        assert (head.status, head.body) == (200, b"")
        assert head.header("Content-Length") == get.header("Content-Length")


@on_one_store
def test_a_body_that_is_too_large_for_properties_is_refused(target: Target) -> None:
    assert TopicClient(target).request("PUT", body=b" " * 20_000).status == 413
