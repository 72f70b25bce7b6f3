"""Shards of logs that do not fit into memory, and of readers with a narrow right."""

import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from tests.contract.wire.store_kinds import StoreKind, on_each_driver
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TransactionClient, record
from tests.kits.contract.shards import SHARDS, one_of_each, shard_of, spread_type
from tests.kits.contract.wire import (
    JSON,
    SSE,
    Target,
    data_of,
    event_of,
    fresh_type,
    id_of,
    operation,
    said,
    wait_until,
)

SECRET = "a secret of more than 32 bytes, for tests"


def granted(**right: Any) -> dict[str, str]:
    token = jwt.encode({"exp": time.time() + 600, "oplog": right}, SECRET, "HS256")
    return {"Authorization": f"Bearer {token}"}


ALL = granted(read=["*"], write=["*"], manage=["*"])


@pytest.fixture(scope="module")
def small(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Start an agent that reads all but the newest entries from its store."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "key").write_text(SECRET)
    flags = ("--ring-size", "16", "--ring-bytes", "64KB", "--token-key", str(folder / "key"))
    with store_kind.agent(folder, *flags) as agent:
        yield Target.of(agent)


def store(target: Target, *operations: dict[str, Any]) -> None:
    assert target.post([*operations], {**JSON, **ALL}).status == 200


def is_followed(target: Target) -> bool:
    return bool(target.status()["store"]["lag"]["follower"] == 0)


def test_operations_that_have_left_memory_come_in_their_shard(small: Target) -> None:
    numbers = [str(number % 70) for number in range(300)]
    type_ = spread_type({*numbers}, 15)
    ids = [*numbers, *one_of_each(f"{type_}/")]
    with small.follow(None, {**SSE, **ALL}) as everything:
        store(small, operation("insert", "before", fresh_type()))
        before = id_of(everything.block())
        store(small, *(operation("update", id_, type_) for id_ in ids))
        blocks = everything.take(len(ids))
    assert wait_until(lambda: is_followed(small))
    fallbacks = small.status()["fallbacks"]["store"]
    for shard in SHARDS:
        wanted = [
            block
            for block, id_ in zip(blocks, ids, strict=True)
            if shard_of(f"{type_}/{id_}") == shard
        ]
        for start, end in ((before, wanted), (id_of(wanted[50]), wanted[51:])):
            with small.follow(start, {**SSE, **ALL}, shard=shard) as stream:
                assert stream.take(len(end)) == end
                store(small, *(operation("update", id_, type_) for id_ in one_of_each(f"{type_}/")))
                live = stream.block()
                assert shard_of(f"{type_}/{said(live)[1]}") == shard
    assert small.status()["fallbacks"]["store"] == fallbacks + 2 * len(SHARDS)


@on_each_driver
def test_messages_that_have_left_memory_come_in_their_shard(small: Target) -> None:
    topic = TopicClient(small, headers=ALL).create()
    keys = [*(str(number % 20) for number in range(100)), *one_of_each()]
    txn = TransactionClient(small, ALL)
    messages = [{"payload": "x" * 3_000, "key": key} for key in keys]
    txn.write(*(record(topic, lsn, **message) for lsn, message in enumerate(messages)))
    topic.store(*messages)
    txn.commit(len(messages))
    topic.store(*messages)
    found = everything(topic)
    assert len(found) == 3 * len(keys)
    for shard in SHARDS:
        wanted = [each for each in found if shard_of(each["key"]) == shard]
        for place in (0, len(wanted) // 2):
            start = wanted[place - 1]["id"] if place else "0"
            with topic.follow(start, f"?shard={shard}") as stream:
                blocks = stream.take(len(wanted) - place)
            assert [{"id": id_of(each), **data_of(each)} for each in blocks] == wanted[place:]
        assert everything(topic, f"?shard={shard}") == wanted


def everything(topic: TopicClient, query: str = "") -> list[dict[str, Any]]:
    """Poll on from the positions told, up to the end."""
    found: list[dict[str, Any]] = []
    start = None
    while True:
        body = {"startFrom": start, "inclusive": start is None}
        reply = topic.request("POST", f"/poll{query}", body, JSON)
        if not reply.json:
            return found
        found += reply.json
        start = reply.header("Oplog-Position") if query else found[-1]["id"]
        assert start is not None


def test_a_reader_of_some_types_gets_their_operations_of_a_shard(small: Target) -> None:
    mine, theirs = fresh_type(), fresh_type()
    reader = granted(types=[mine])
    ids = [*map(str, range(20)), *one_of_each(f"{mine}/")]
    with small.follow(None, {**SSE, **ALL}) as everyone:
        store(small, operation("insert", "before", theirs))
        before = id_of(everyone.block())
    live = {shard: small.follow(None, {**SSE, **reader}, shard=shard) for shard in SHARDS}
    store(small, *(operation("insert", id_, type_) for id_ in ids for type_ in (theirs, mine)))
    for shard, stream in live.items():
        wanted = [id_ for id_ in ids if shard_of(f"{mine}/{id_}") == shard]
        last = [id_ for place, id_ in enumerate(wanted) if id_ not in wanted[place + 1 :]]
        with stream:
            assert [said(block)[1] for block in stream.take(len(wanted))] == wanted
        with small.follow(before, {**SSE, **reader}, shard=shard) as stream:
            assert [said(block)[1] for block in stream.take(len(wanted))] == wanted
        with small.follow("0", {**SSE, **reader}, shard=shard) as stream:
            states = stream.until("live")[:-1]
        assert [said(block)[1] for block in states if event_of(block) != "reset"] == last
        objects = small.request("GET", f"/objects?shard={shard}", None, reader)
        assert (objects.status, objects.header("Oplog-Shard")) == (200, shard)
        assert [json.loads(each)["id"] for each in objects.body.splitlines()] == sorted(last)
        polled = TopicClient(small, OPLOG, reader).request(
            "POST", f"/poll?shard={shard}", {"startFrom": before}, JSON
        )
        assert (polled.status, polled.header("Oplog-Shard")) == (200, shard)
        payloads = [json.loads(each["payload"]) for each in polled.json]
        assert [(each["type"], each["id"]) for each in payloads] == [(mine, id_) for id_ in wanted]
        hidden = small.request("GET", f"/objects?shard={shard}&types={theirs}", None, reader)
        assert (hidden.status, hidden.body) == (200, b"")
