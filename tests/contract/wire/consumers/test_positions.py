"""Acknowledgements and bad requests: the short way and the app answer alike."""

import json
from typing import Any

from tests.contract.wire.consumers.consumers import CONSUMERS, ConsumerClient
from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.kits.contract.passwords import READER, WRITER, basic
from tests.kits.contract.wire import (
    JSON,
    NDJSON,
    SSE,
    Reply,
    Target,
    event_of,
    fresh_type,
    id_of,
    operation,
)
from tests.kits.web.pair import LongAgent

VARYING = ("date",)


def kept(reply: Reply) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return an answer without the headers that vary."""
    headers = [(name, value) for name, value in reply.headers if name not in VARYING]
    return reply.status, headers, reply.body


def long_way(consumer: ConsumerClient, body: Any) -> Reply:
    """Acknowledge with a type that the short way leaves to the app."""
    typed = {"Content-Type": "application/json; charset=utf-8"}
    return consumer.request("POST", "/position", body, typed)


def test_both_ways_take_and_refuse_the_same(target: Target, consumer: ConsumerClient) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "before", type_))
    consumer.create(types=[type_], shards=2)
    with consumer.follow("?shard=0") as stream, consumer.follow("?shard=1") as other:
        target.store(*(operation("insert", str(each), type_) for each in range(20)))
        id_ = id_of(stream.read_past(type_.encode()).rsplit(b"\n\n", 2)[-2] + b"\n\n")
        term = stream.term
        bodies: list[tuple[int, Any]] = [
            (204, {"term": term, "id": id_}),
            (204, {"term": term, "id": id_, "shard": 0}),
            (204, {"term": other.term, "id": id_, "shard": 1}),
            (412, {"term": term + 1, "id": id_}),
            (412, {"term": term + 1, "id": "!"}),
            (400, {"term": term, "id": "!" * 24}),
            (400, {"term": term, "id": "f" * 24}),
            (400, {"term": term, "id": "0"}),
            (400, {"term": term, "id": id_, "shard": 2}),
            (400, {"term": term, "id": id_, "more": 1}),
            (400, {"term": 0, "id": id_}),
            (400, b"{"),
            (400, b""),
            (413, b" " * 5_000),
            (413, json.dumps({"term": term, "id": id_}).encode() + b" " * 5_000),
        ]
        for status, body in bodies:
            short = consumer.request("POST", "/position", body)
            assert short.status == status, (body, short)
            assert kept(short) == kept(long_way(consumer, body)), body
        for number in (0, 1):
            assert consumer.position(number) == id_
    consumer.request("DELETE")
    body = {"term": term, "id": id_}
    assert kept(consumer.request("POST", "/position", body)) == kept(long_way(consumer, body))


@on_one_store
def test_an_agent_without_the_short_way_answers_the_same(
    store_kind: StoreKind, target: Target, tmp_path: Any
) -> None:
    with LongAgent(tmp_path) as agent:
        replies: list[list[Any]] = []
        for each in (target, Target.of(agent)):
            each.store(operation("insert", "a", "thing"))
            consumer = ConsumerClient(each, "alike").create(start="copy")
            with consumer.follow() as stream:
                live = stream.until("live")[-1]
                term = stream.term
                replies.append([])
                for body in (
                    {"term": term, "id": id_of(live)},
                    {"term": term, "id": "1"},
                    {"term": term, "id": "x"},
                    {"term": term + 7, "id": "x"},
                ):
                    reply = consumer.request("POST", "/position", body)
                    headers = [name for name, _ in reply.headers]
                    replies[-1].append((reply.status, headers))
    assert replies[0] == replies[1]
    assert [status for status, _ in replies[0]] == [204, 204, 400, 412]


def test_acknowledgements_that_come_in_any_order_leave_the_largest(
    target: Target, consumer: ConsumerClient
) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "before", type_))
    consumer.create(types=[type_])
    with consumer.follow() as stream:
        target.store(*(operation("insert", str(each), type_) for each in range(9)))
        ids = [id_of(each) for each in stream.take(10) if event_of(each)]
        for id_ in (ids[3], ids[0], ids[7], ids[7], ids[2]):
            consumer.acknowledge(stream, id_)
    assert consumer.position() == ids[7]


def test_an_id_that_the_log_never_had_is_refused(
    target: Target, topic: TopicClient, consumer: ConsumerClient, of_topic: ConsumerClient
) -> None:
    topic.store("a")
    target.store(operation("insert", "a", fresh_type()))
    consumer.create(start="copy")
    with consumer.follow() as stream, of_topic.follow() as of_messages:
        stream.until("live")
        for each, at in ((consumer, stream), (of_topic, of_messages)):
            before = each.position()
            digits = 24 if each is consumer else 40
            for wrong in ("f" * digits, "!" * digits, "!" * 13, "F" * digits, "0" * 30, "00"):
                reply = each.acknowledging(at.term, wrong)
                assert reply.status == 400, wrong
                assert reply.problem().startswith("id: ")
            assert each.position() == before
    with consumer.follow() as stream:
        assert stream.block()


def test_a_time_past_the_newest_operation_is_refused(
    target: Target, consumer: ConsumerClient
) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "before", type_))
    consumer.create(types=[type_])
    with consumer.follow() as stream:
        target.store(operation("insert", "a", type_))
        newest = next(id_of(each) for each in stream.blocks() if event_of(each))
        # A reader of this term would go on behind it, without the operation.
        soon = int(newest[:8], 16) * 1000 + 30_000
        reply = consumer.acknowledging(stream.term, str(soon))
        assert (reply.status, reply.problem()) == (400, "id: is no id of system/oplog")
    with consumer.follow(f"?term={stream.term}") as stream:
        assert next(id_of(each) for each in stream.blocks() if event_of(each)) == newest


# --- Bad requests ---


FOREIGN = ("types", "parents", "ids", "events", "isolation", "since", "start")
SLIPS = ("Type", "shards", "Shard", "Term", "terms", "last-event")
BAD = [
    ("PUT", "", {"log": "orders"}, "log"),
    ("PUT", "", {"log": "system/oplog", "types": [""]}, "types"),
    ("PUT", "", {"log": "system/oplog", "isolation": "read_committed"}, "isolation"),
    ("PUT", "", {"log": "system/oplog", "start": "hunter2"}, "start"),
    ("PUT", "", {"log": "system/oplog", "start": "0" * 40}, "start"),
    ("PUT", "", {"log": "system/oplog", "shards": 257}, "shards"),
    ("PUT", "", {"log": "system/oplog", "hunter2": 1}, "hunter2"),
    ("PUT", "", b"[]", "body"),
    ("POST", "/seek", {"position": "hunter2"}, "position"),
    ("POST", "/seek", {"position": "now", "shard": 2}, "shard"),
    ("POST", "/seek", {"position": "now", "shard": -1}, "shard"),
    ("POST", "/seek", {}, "position"),
    ("POST", "/seek", b"\xff", "body"),
    ("POST", "/position", {"term": 1}, "id"),
    ("POST", "/position", {"id": "1"}, "term"),
    ("POST", "/position", {"term": 1, "id": "1", "shard": 2}, "shard"),
    ("POST", "/position", {"term": 10**30, "id": "1"}, "term"),
    ("POST", "/position", {"term": 1, "id": ""}, "id"),
    ("POST", "/position", b'{"term": 1, "id": "\\ud800"}', "body"),
    ("POST", "/position", b"{" * 2_000, "body"),
    ("GET", "/stream", None, "shard"),
    ("GET", "/stream?shard=2", None, "shard"),
    ("GET", "/stream?shard=-1", None, "shard"),
    ("GET", "/stream?shard=hunter2", None, "shard"),
    ("GET", "/stream?shard=0/2", None, "shard"),
    ("GET", "/stream?shard=" + "9" * 5_000, None, "shard"),
    ("GET", "/stream?shard=%D9%A1", None, "shard"),
    ("GET", "/stream?shard=0&term=0", None, "term"),
    ("GET", "/stream?shard=0&term=hunter2", None, "term"),
    ("GET", "/stream?shard=0&term=" + "9" * 19, None, "term"),
    *(("GET", f"/stream?shard=0&{name}=1", None, name) for name in (*FOREIGN, *SLIPS)),
    ("GET", "/stream?shard=0&last_event_id=1", None, "last_event_id"),
    ("GET", "/stream?shard=0&lastEventId=1", None, "lastEventId"),
]


@on_one_store
def test_each_bad_value_is_named_and_logged_without_a_traceback(
    store_kind: StoreKind, tmp_path: Any
) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        consumer = ConsumerClient(target).create(shards=2)
        term = consumer.shard()["term"]
        for method, path, body, field in BAD:
            reply = consumer.request(method, path, body, SSE)
            assert reply.status == 400, (method, path, body, reply)
            assert reply.problem().startswith(f"{field}: "), (method, path, body, reply.body)
        for method, path, body in (
            ("PUT", "", {"log": "system/oplog"}),
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/stream", None),
            ("POST", "/seek", {"position": "now"}),
            ("POST", "/position", {"term": 1, "id": "1"}),
        ):
            for name in ("a%20b", "%C3%A9", "x" * 101, "a%0A", "%00"):
                raw = None if body is None else json.dumps(body).encode()
                reply = target.request(method, f"{CONSUMERS}/{name}{path}", raw, {**JSON, **SSE})
                assert reply.status == 400, (method, name, reply)
                assert reply.problem().startswith("name: "), (method, name, reply.body)
        assert consumer.shown()["shards"][0]["term"] >= term
        assert "Traceback" not in agent.text()


@on_one_store
def test_only_json_is_read(target: Target, consumer: ConsumerClient) -> None:
    consumer.create()
    for method, path, body in (
        ("PUT", "", b'{"log": "system/oplog"}'),
        ("POST", "/seek", b'{"position": "now"}'),
        ("POST", "/position", b'{"term": 1, "id": "1"}'),
    ):
        for headers in (NDJSON, {"Content-Type": "text/plain"}, {}):
            reply = target.request(method, consumer.path + path, body, headers)
            assert (reply.status, "application/json" in reply.problem()) == (415, True)
        page = target.request(method, consumer.path + path, b"", {"Origin": "http://localhost:1"})
        assert page.status == 415
        assert consumer.request(method, path, b" " * 300_000).status == 413


@on_one_store
def test_a_stream_needs_the_media_type(target: Target, consumer: ConsumerClient) -> None:
    consumer.create()
    reply = target.request("GET", f"{consumer.path}/stream", None, {"Accept": "application/json"})
    assert (reply.status, "text/event-stream" in reply.problem()) == (406, True)


def as_page(target: Target, method: str, path: str, host: str, body: bytes, *more: str) -> Reply:
    """Send a request as a browser does for a page under ``host``."""
    length = [f"Content-Length: {len(body)}"] if body else []
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *length, *more, "", ""]
    return target.exchange("\r\n".join(lines).encode() + body, method)


@on_one_store
def test_no_page_under_an_unknown_host_name_changes_a_consumer(target: Target) -> None:
    consumer = ConsumerClient(target).create(start="copy")
    with consumer.follow() as stream:
        position = b'{"term": %d, "id": "1"}' % stream.term
        for host, is_allowed in (("evil.example", False), ("localhost", True)):
            page = (f"Origin: http://{host}", "Content-Type: application/json")
            for method, path, body, status in (
                ("POST", "/position", position, 204),
                ("PUT", "", b'{"log": "system/oplog"}', 200),
                ("POST", "/seek", b'{"position": "copy"}', 200),
                ("DELETE", "", b"", 204),
            ):
                reply = as_page(target, method, consumer.path + path, host, body, *page)
                assert reply.status == (status if is_allowed else 403), (path, reply)
                if is_allowed:
                    assert reply.header("Access-Control-Allow-Origin") is None, path


@on_one_store
def test_no_page_of_another_origin_takes_a_shard(target: Target, guarded: Target) -> None:
    consumer = ConsumerClient(target).create()
    term = consumer.shard()["term"]
    for told in ("Origin: http://localhost:1", "Sec-Fetch-Site: cross-site"):
        page = ("Accept: text/event-stream", told)
        reply = as_page(target, "GET", f"{consumer.path}/stream", "localhost", b"", *page)
        assert reply.status == 403, told
        assert as_page(target, "GET", consumer.path, "localhost", b"", *page).status == 200
    assert consumer.shard()["term"] == term
    with consumer.follow("", {"Sec-Fetch-Site": "same-origin"}) as stream:
        assert stream.term == term + 1
    guarded_one = ConsumerClient(guarded, headers=basic(WRITER)).create()
    reader = guarded_one.at(guarded, {**basic(READER), "Origin": "http://example.com"})
    with reader.follow() as stream:
        assert stream.header("Access-Control-Allow-Origin") == "*"
