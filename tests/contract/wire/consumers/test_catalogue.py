"""Named consumers are created, shown, listed, moved and deleted."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.contract.wire.consumers.consumers import CONSUMERS, OPLOG, ConsumerClient
from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.kits.contract.wire import JSON, SSE, Target, fresh_type, id_of, operation


def last_id(target: Target) -> str:
    """Store an operation. Return its id."""
    type_ = fresh_type()
    with target.follow(types=type_) as stream:
        target.store(operation("insert", "x", type_))
        return id_of(stream.block())


def lasting(shown: dict[str, Any]) -> dict[str, Any]:
    """Return a consumer without the ages of its entries."""
    shards = [{**each, "lag_seconds": 0} for each in shown["shards"]]
    return {**shown, "shards": shards}


def test_a_consumer_is_created_with_a_position_of_each_shard(
    target: Target, consumer: ConsumerClient
) -> None:
    id_ = last_id(target)
    reply = consumer.put(types=["b", "a"], parents=["user/1"], shards=2)
    assert (reply.status, reply.header("Access-Control-Allow-Origin")) == (201, None)
    shown = reply.json
    shards = shown.pop("shards")
    assert shown.pop("created").endswith("Z")
    assert shown == {
        "name": consumer.name,
        "log": OPLOG,
        "types": ["a", "b"],
        "parents": ["user/1"],
        "isolation": "read_committed",
    }
    assert [each["shard"] for each in shards] == [0, 1]
    for each in shards:
        assert (each["position"], each["term"], each["reader"]) == (id_, shards[0]["term"], "")
        assert (each["acknowledged"], each["lag"], each["estimated"]) == (None, 0, False)
    assert consumer.shown() == reply.json


def test_the_same_settings_leave_the_positions_and_other_settings_conflict(
    target: Target, consumer: ConsumerClient
) -> None:
    first = consumer.put(types=["a"], shards=2).json
    last_id(target)
    again = consumer.put(types=["A"], shards=2, start="copy", parents=[])
    assert again.status == 200
    positions = [each["position"] for each in again.json["shards"]]
    assert positions == [each["position"] for each in first["shards"]]
    for other in ({"types": ["a"]}, {"types": ["b"], "shards": 2}, {"types": ["a"], "shards": 3}):
        reply = consumer.put(**other)
        assert reply.status == 409
        assert consumer.name in reply.problem()
    assert consumer.shown()["created"] == first["created"]


def test_a_consumer_of_a_topic_has_its_isolation(
    topic: TopicClient, consumer: ConsumerClient
) -> None:
    topic.store("a")
    created = consumer.put(topic.name, start="copy", isolation="read_uncommitted")
    assert (created.status, created.json["isolation"]) == (201, "read_uncommitted")
    assert created.json["log"] == topic.name
    (shard,) = created.json["shards"]
    assert (shard["position"], shard["lag"]) == ("0", 1)
    assert consumer.put(topic.name).status == 409


def test_a_consumer_of_an_unknown_log_is_not_created(
    target: Target, consumer: ConsumerClient
) -> None:
    for log in (f"{consumer.name}/none", "system/none"):
        reply = consumer.put(log)
        assert reply.status == 404
        assert log in reply.problem()
    assert consumer.request("GET").status == 404


def test_a_consumer_starts_at_the_position_that_its_creator_names(target: Target) -> None:
    id_ = last_id(target)
    for start, position in (("copy", "0"), ("1796061390687", "1796061390687"), (id_, id_)):
        consumer = ConsumerClient(target).create(start=start)
        assert consumer.position() == position


def test_a_seek_moves_one_shard_or_all(target: Target, consumer: ConsumerClient) -> None:
    first, second = last_id(target), last_id(target)
    consumer.create(shards=3)
    begun = [each["term"] for each in consumer.shown()["shards"]]

    def moved(position: str, **members: Any) -> tuple[list[str], list[int]]:
        reply = consumer.seeking(position, **members)
        assert (reply.status, lasting(reply.json)) == (200, lasting(consumer.shown()))
        shards = reply.json["shards"]
        terms = [each["term"] - before for each, before in zip(shards, begun, strict=True)]
        return [each["position"] for each in shards], terms

    assert moved(first, shard=1) == ([second, first, second], [0, 1, 0])
    assert moved("copy") == (["0"] * 3, [1, 2, 1])
    assert moved(second, shard=None) == ([second] * 3, [2, 3, 2])
    assert moved("1") == (["1"] * 3, [3, 4, 3])
    last_id(target)
    assert moved("now", shard=2)[0][:2] == ["1", "1"]
    assert consumer.position(2) > second


def test_terms_go_on_when_a_consumer_is_deleted_and_created_again(
    consumer: ConsumerClient,
) -> None:
    terms = []
    for _ in range(3):
        consumer.create(start="copy")
        with consumer.follow() as stream:
            terms.append(stream.term)
            reply = consumer.request("DELETE")
            assert (reply.status, reply.body) == (204, b"")
            stream.rest()
    assert terms == sorted({*terms})
    consumer.create()
    for term in terms:
        assert consumer.acknowledging(term, "1").status == 412
        refused = consumer.request("GET", f"/stream?term={term}", headers=SSE)
        assert refused.status == 412


def test_consumers_are_listed_by_name_in_pages(target: Target, topic: TopicClient) -> None:
    mark = ConsumerClient(target).name
    made = [ConsumerClient(target, f"{mark}-{each}") for each in "BaC.0"]
    for each in made:
        each.create(topic.name, shards=2)

    def pages(limit: int) -> list[Any]:
        found, after = [], ""
        while True:
            reply = target.request("GET", f"{CONSUMERS}?limit={limit}{after}")
            assert (reply.status, len(reply.json) <= limit) == (200, True)
            found += reply.json
            if (cursor := reply.header("Oplog-Next")) is None:
                return found
            assert len(reply.json) == limit
            after = f"&after={cursor}"

    whole = target.request("GET", CONSUMERS)
    assert (whole.status, whole.header("Access-Control-Allow-Origin")) == (200, "*")
    names = [each["name"] for each in whole.json]
    assert names == sorted(names)
    own = [each for each in whole.json if each["name"].startswith(mark)]
    assert [each["name"] for each in own] == sorted(each.name for each in made)
    for each in own:
        shown = ConsumerClient(target, each["name"]).shown()
        del shown["shards"]
        assert each == shown
    for limit in (1, 2, 1000):
        assert pages(limit) == whole.json
    for query in ("limit=0", "limit=1001", "limit=x", "after=x", "after=A" + "A" * 5000):
        reply = target.request("GET", f"{CONSUMERS}?{query}")
        assert (reply.status, reply.problem().partition(":")[0]) == (400, query.partition("=")[0])


@on_one_store
def test_a_consumer_that_is_not_there_is_not_found(
    target: Target, consumer: ConsumerClient
) -> None:
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/stream", None),
        ("HEAD", "/stream", None),
        ("POST", "/seek", {"position": "now"}),
        ("POST", "/position", {"term": 1, "id": "1"}),
    ):
        reply = consumer.request(method, path, body, SSE)
        assert reply.status == 404, (method, path)
        if method != "HEAD":
            assert consumer.name in reply.problem()
    assert target.request("GET", f"{CONSUMERS}/a/b/c").status == 404


@on_one_store
def test_the_paths_tell_their_methods(target: Target, consumer: ConsumerClient) -> None:
    term = consumer.create().shard()["term"]
    for path, allowed, is_read in (
        (CONSUMERS, "GET, HEAD, OPTIONS", True),
        (consumer.path, "DELETE, GET, HEAD, OPTIONS, PUT", True),
        (f"{consumer.path}/stream", "GET, HEAD, OPTIONS", True),
        (f"{consumer.path}/seek", "OPTIONS, POST", False),
        (f"{consumer.path}/position", "OPTIONS, POST", False),
    ):
        refused = target.request("PATCH", path, b"{}", JSON)
        assert (refused.status, refused.header("Allow")) == (405, allowed), path
        head = target.request("HEAD", path, None, SSE)
        assert (head.status, head.body) == (200 if is_read else 405, b""), path
        options = target.request("OPTIONS", path)
        assert options.status == 204, path
        assert options.header("Access-Control-Allow-Methods") == "GET, HEAD", path
    assert consumer.shard()["term"] == term, "HEAD takes no term"


@on_one_store
def test_a_deleted_topic_leaves_its_consumers_to_be_deleted(
    topic: TopicClient, of_topic: ConsumerClient
) -> None:
    with of_topic.follow() as stream:
        topic.request("DELETE")
        stream.rest()
    assert of_topic.shard()["lag"] == 0
    assert of_topic.request("GET", "/stream", headers=SSE).status == 404
    assert of_topic.seeking("now").status == 404
    assert of_topic.request("DELETE").status == 204


@on_one_store
def test_the_examples_of_the_description_work(target: Target, topic: TopicClient) -> None:
    paths = target.request("GET", "/openapi.json").json["paths"]
    consumer = ConsumerClient(target)
    consumer_path = f"{CONSUMERS}/{{name}}"
    assert paths[consumer_path].keys() == {"put", "get", "delete"}
    for path, method, action in (
        (consumer_path, "put", ""),
        (f"{consumer_path}/seek", "post", "/seek"),
        (f"{consumer_path}/position", "post", "/position"),
    ):
        body = paths[path][method]["requestBody"]["content"]["application/json"]["example"]
        if action == "":
            body["log"] = topic.name
        if action == "/position":
            with consumer.follow(f"?shard={body['shard']}") as stream:
                body = {**body, "term": stream.term, "id": id_of(stream.block())}
        reply = consumer.request(method.upper(), action, body)
        assert reply.status in (200, 201, 204), (path, json.dumps(body), reply)


@on_one_store
def test_a_store_of_a_version_before_gets_the_tables(store_kind: StoreKind, tmp_path: Path) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        target.store(operation("insert", "a", "thing"))
    with closing(sqlite3.connect(tmp_path / "oplog.db", isolation_level=None)) as db:
        for table in ("consumers", "consumer_shards", "consumers_ended"):
            db.execute(f"DROP TABLE {table}")
    with store_kind.agent(tmp_path) as agent:
        consumer = ConsumerClient(Target.of(agent)).create(start="copy")
        with consumer.follow() as stream:
            assert b'"id":"a"' in stream.take(2)[1]
        consumer.request("DELETE")
        assert consumer.create().shard()["term"] > stream.term
