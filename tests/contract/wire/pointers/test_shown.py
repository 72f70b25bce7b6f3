"""Pointers of foreign transactions: polls with a snapshot, pointers and entries as shown."""

import json
import re
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest

from tests.contract.wire.pointers.pointers import (
    HELD_BY,
    MAX_POINTER,
    TEPHRA,
    PointerClient,
    empty,
    pointers,
    report,
    seen,
    shown,
    snapshot,
)
from tests.contract.wire.store_kinds import on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TransactionClient, record, said
from tests.kits.clock.waiting import attempts
from tests.kits.contract.wire import JSON, Target
from tests.kits.processes.logged import DEADLINE

MB = 1 << 20


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


# --- Heartbeats of a held stream ---


def test_the_heartbeats_of_a_held_stream_name_its_pointer(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    pointer.publish("a")
    name = topic.name.encode()
    named = rb": held by pointer %d of %s since [0-9]+ s\n" % (TEPHRA, name)
    # While the store is asked, nothing is known of a hold.
    beats = re.compile(rb"(:\n)*(%s)+(:\n)*" % named)
    with (
        closing(topic.follow("0", "?isolation=read_committed")) as held,
        closing(topic.follow("0", "?isolation=read_uncommitted")) as other,
    ):
        for _ in attempts(DEADLINE):
            if re.search(named, held.received):
                break
            held.chunk()
        else:
            raise AssertionError(f"no heartbeat names the pointer: {held.received!r}")
        report(target, TEPHRA, "commit", topic)
        for stream in (held, other):
            while not stream.received.endswith(b"\n\n:\n"):
                stream.chunk()
        before, _, message = held.received.partition(b"id:")
        assert beats.fullmatch(before)
        assert b"id:" + message == other.received.lstrip(b":\n")


# --- Poll with a snapshot ---


@on_one_store
@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"transaction": 5}, "transaction: must be an object or null"),
        ({"transaction": {}}, "transaction.readPointer: is required"),
        ({"transaction": snapshot(5, more=1)}, "transaction.more: is not a member"),
        ({"transaction": snapshot(1 << 63)}, "transaction.readPointer: must be a whole number"),
        ({"transaction": snapshot(5, writePointer="x")}, "transaction.writePointer: "),
        ({"transaction": snapshot(5, invalid=[1, None])}, "transaction.invalid[1]: "),
        (
            {"transaction": snapshot(5), "isolation": "read_uncommitted"},
            "isolation: must be read_committed with a transaction",
        ),
    ],
)
def test_a_bad_snapshot_names_its_member(
    target: Target, topic: TopicClient, members: dict[str, Any], sentence: str
) -> None:
    for each in (topic, TopicClient(target, OPLOG)):
        assert said(each.poll(**members), 400).startswith(sentence)


@on_one_store
def test_a_snapshot_takes_the_isolation_of_the_query_into_account(topic: TopicClient) -> None:
    body = {"transaction": snapshot(5)}
    for query, status in (("read_uncommitted", 400), ("read_committed", 200)):
        assert topic.request("POST", f"/poll?isolation={query}", body, JSON).status == status


@on_one_store
def test_a_poll_with_a_snapshot_may_be_longer_than_one_without(topic: TopicClient) -> None:
    PointerClient(topic, 5).publish("a")
    long = [TEPHRA + k for k in range(90_000)]
    assert seen(topic, readPointer=TEPHRA * 2, inProgress=long) == (["a"], None)
    for transaction, bound in ((snapshot(TEPHRA), 2 * MB), (None, 65_536)):
        raw = json.dumps({"transaction": transaction}).encode()
        assert topic.request("POST", "/poll", raw.ljust(bound), JSON).status == 200
        reply = topic.request("POST", "/poll", raw.ljust(bound + 1), JSON)
        assert said(reply, 413) == f"the body has more than {bound:,} bytes"
    for body in (b" " * 65_537, b" " * (2 * MB + 1)):
        assert said(topic.request("POST", "/poll", body, JSON), 413)
    many = [*range(50_001)]
    reply = topic.poll(transaction=snapshot(5, inProgress=many, invalid=many[:50_000]))
    assert said(reply, 400) == "transaction: has more than 100,000 pointers in its lists"


@on_one_store
def test_a_snapshot_has_no_effect_in_the_oplog(target: Target) -> None:
    oplog = TopicClient(target, OPLOG)
    assert oplog.poll(transaction=snapshot(0)).body == oplog.poll().body


# --- Shown ---


def test_open_pointers_are_listed_oldest_first(target: Target, topic: TopicClient) -> None:
    assert pointers(topic) == []
    PointerClient(topic, MAX_POINTER).store("a")
    PointerClient(topic, 7).publish("a")
    PointerClient(topic, 6).publish("a")
    assert report(target, 6, "abort", topic).status == 200
    found = sorted(pointers(topic), key=lambda each: len(each["pointer"]), reverse=True)
    assert [{**each, "begun_at": "", "expires_at": ""} for each in found] == [
        {"pointer": str(MAX_POINTER), "begun_at": "", "expires_at": "", "published": False},
        {"pointer": "7", "begun_at": "", "expires_at": "", "published": True},
    ]
    begun = [ms(each["begun_at"]) for each in pointers(topic)]
    assert begun == sorted(begun)
    assert all(ms(each["expires_at"]) - ms(each["begun_at"]) == 900_000 for each in found)
    assert pointers(topic, "?limit=1") == pointers(topic)[:1]
    PointerClient(topic, MAX_POINTER).publish()
    assert [each["published"] for each in pointers(topic)] == [True, True]


def test_entries_show_all_but_the_messages(target: Target, topic: TopicClient) -> None:
    topic.store("plain")
    pointer, other = PointerClient(topic, 7), PointerClient(topic, 8)
    pointer.publish("secret")
    pointer.store("b", "c")
    pointer.publish()
    answer = other.publish("d", "e")
    other.rollback(messages=answer["messages"][:1])
    txn = TransactionClient(target)
    txn.write(record(topic, 0, "own"))
    txn.commit(1)
    assert report(target, 7, "commit", topic).status == 200
    entries = other.entries()
    assert [each["offset"] for each in entries] == [*range(1, 10)]
    polled = {each["payload"]: each["id"] for each in topic.polled()}
    assert entries[0]["id"] + "0" * 20 == polled["plain"]
    assert entries[2]["id"] == polled["b"][:20] == polled["c"][:20]
    assert all(int(each["id"][:16], 16) == ms(each["time"]) for each in entries)
    assert all("secret" not in str(each) for each in entries)
    sizes = [each.pop("bytes") for each in entries]
    assert [sizes[0], sizes[1]] == [len(f'{{"payload":"{text}"}}') for text in ("plain", "secret")]
    assert sizes[3] == 0, "it was rolled back"
    for each in entries:
        for name in ("offset", "id", "time"):
            del each[name]
    mine = {"pointer": "7", "state": "committed"}
    assert entries == [
        {"kind": "message"},
        {"kind": "direct", **mine},
        {"kind": "publish", **mine, "records": 2},
        {"kind": "void"},
        {"kind": "direct", "pointer": "8", "state": "open"},
        {"kind": "void", "pointer": "8", "state": "open", "voided": 1},
        {"kind": "deferred"},
        {"kind": "commit", "txn": txn.id, "records": 1},
        {"kind": "commit", **mine},
    ]


def test_entries_are_shown_from_an_offset_or_the_newest(topic: TopicClient) -> None:
    topic.store(*map(str, range(105)))

    def offsets(query: str) -> list[int]:
        return [each["offset"] for each in shown(topic, f"/entries{query}")]

    assert offsets("") == [*range(6, 106)]
    assert offsets("?limit=2") == [104, 105]
    assert offsets("?limit=1000") == [*range(1, 106)]
    assert offsets("?after=0&limit=2") == [1, 2]
    assert offsets("?after=103") == [104, 105]
    assert offsets("?after=105") == offsets("?after=1099511627775") == []


@on_one_store
@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/pointers?limit=0", "limit: must be a whole number from 1 to 1,000"),
        ("/pointers?limit=1001", "limit: "),
        ("/entries?limit=x", "limit: "),
        ("/entries?after=-1", "after: must be an offset: a whole number from 0 to 1099511627775"),
        ("/entries?after=1099511627776", "after: "),
    ],
)
def test_a_bad_list_names_its_parameter(topic: TopicClient, path: str, sentence: str) -> None:
    assert said(topic.request("GET", path), 400).startswith(sentence)


@on_one_store
def test_methods_of_pointers_are_told(target: Target, topic: TopicClient) -> None:
    for path, allowed in {
        f"{topic.path}/store": "OPTIONS, POST",
        f"{topic.path}/rollback": "OPTIONS, POST",
        f"{topic.path}/pointers": "GET, HEAD, OPTIONS",
        f"{topic.path}/entries": "GET, HEAD, OPTIONS",
        "/v1/pointers/5/commit": "OPTIONS, POST",
        "/v1/pointers/5/abort": "OPTIONS, POST",
    }.items():
        reply = target.request("PUT", path)
        assert (reply.status, reply.header("Allow")) == (405, allowed)
    for path in ("/pointers", "/entries"):
        head, get = (topic.request(method, path) for method in ("HEAD", "GET"))
        assert (head.status, head.body) == (200, b"")
        assert head.header("Content-Length") == get.header("Content-Length")


# --- Documentation ---


@on_one_store
def test_pointers_are_described_with_examples_that_work(target: Target) -> None:
    topic = TopicClient(target, "shop/orders")
    topic.request("DELETE")
    topic.create()
    paths = target.request("GET", "/openapi.json").json["paths"]
    of_topic = "/v1/namespaces/{namespace}/topics/{topic}"
    refused = {"400", "401", "403", "404", "408", "409", "413", "415", "429", "431", "503"}
    for name in ("store", "rollback"):
        described = paths[f"{of_topic}/{name}"]["post"]
        assert {*described["responses"]} == {"200"} | refused
        assert {*described["requestBody"]["content"]} == {"application/json", "avro/binary"}
        empty(topic.request("POST", f"/{name}", _example(described), JSON))
    PointerClient(topic, 1732701600000000000).publish()
    for name in ("pointers", "entries"):
        described = paths[f"{of_topic}/{name}"]["get"]
        assert {*described["responses"]} == {"200", "400", "401", "403", "404", "429", "503"}
        (example,) = described["responses"]["200"]["content"]["application/json"]["example"]
        given = {**shown(topic, f"/{name}?limit=1")[0], "records": 1}
        assert given.keys() == {*example, "records"}
    described = paths["/v1/pointers/{pointer}/commit"]["post"]
    number = described["parameters"][0]["example"]
    body = json.dumps(_example(described)).encode()
    reply = target.request("POST", f"/v1/pointers/{number}/commit", body, JSON)
    answer = described["responses"]["200"]["content"]["application/json"]["example"]
    assert (reply.status, reply.json) == (200, answer)
    assert {*described["responses"]} == {"200"} | refused
    assert paths["/v1/pointers/{pointer}/abort"]["post"]["responses"].keys() == (
        described["responses"].keys()
    )
    poll = paths[f"{of_topic}/poll"]["post"]["responses"]["200"]
    assert {*poll["headers"]} == {"Oplog-Gap", HELD_BY, "Oplog-Position", "Oplog-Shard"}


def _example(described: dict[str, Any]) -> Any:
    return described["requestBody"]["content"]["application/json"]["example"]
