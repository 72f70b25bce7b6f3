"""Acknowledgements that named consumers refuse. None of them breaks the consumer, nor /status."""

import json
import time
import uuid

import pytest

from tests.contract.wire.store_kinds import on_each_driver
from tests.kits.contract.wire import JSON, SSE, RawStream, Reply, Target, event_of, id_of, operation

Named = tuple[Target, str]


@pytest.fixture
def named(target: Target) -> Named:
    """Return an agent with an operation, and the path of a new consumer of eight shards."""
    target.store(operation("insert", "a", "video"))
    path = f"/v1/consumers/{uuid.uuid4().hex}"
    create(target, path, 8)
    return target, path


def create(target: Target, path: str, shards: int) -> None:
    settings = {"log": "system/oplog", "start": "copy", "shards": shards}
    assert target.request("PUT", path, json.dumps(settings).encode(), JSON).status == 201


def acknowledge(named: Named, term: int, id_: str, shard: int) -> Reply:
    target, path = named
    body = {"shard": shard, "term": term, "id": id_}
    return target.request("POST", f"{path}/position", json.dumps(body).encode(), JSON)


@on_each_driver
@pytest.mark.parametrize("character", ["!", "G", "A"])
def test_a_text_that_is_no_id_is_refused_though_it_sorts_before_the_position(
    named: Named, character: str
) -> None:
    target, path = named
    with RawStream(target, f"{path}/stream?shard=7", list(SSE.items())) as stream:
        while event_of(block := stream.block()) != "live":
            pass
        live = id_of(block)
        for length in (len(live), 13):
            reply = acknowledge(named, 1, character * length, 7)
            assert reply.status == 400
            assert reply.problem().startswith("id: ")
        assert acknowledge(named, 1, live, 7).status == 204
    assert target.request("GET", path).json["shards"][7]["position"] == live
    assert target.request("GET", "/status").status == 200


@on_each_driver
def test_a_time_ahead_is_refused_as_it_would_skip_what_comes_until_then(named: Named) -> None:
    target, path = named
    with RawStream(target, f"{path}/stream?shard=7", list(SSE.items())):
        ahead = int(time.time() * 1000) + 50_000
        reply = acknowledge(named, 1, str(ahead), 7)
        assert reply.status == 400
        assert reply.problem() == "id: is no id of system/oplog"
        assert acknowledge(named, 1, "1", 7).status == 204


@on_each_driver
def test_a_shard_that_a_later_consumer_of_the_name_lacks_is_not_found(named: Named) -> None:
    target, path = named
    with RawStream(target, f"{path}/stream?shard=7", list(SSE.items())):
        assert target.request("DELETE", path).status == 204
        create(target, path, 1)
        # 400 at a worker that does not know the term.
        assert acknowledge(named, 1, "f" * 24, 7).status in (400, 404)
