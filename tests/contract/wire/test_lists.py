"""Lists over HTTP, whole and in pages, with each of their errors."""

import os
from typing import Any

import pytest

from tests.contract.wire.leases import LEASES, LeaseClient
from tests.contract.wire.pointers.pointers import PointerClient, report
from tests.contract.wire.store_kinds import on_one_store
from tests.contract.wire.topics.topics import TopicClient, fresh_namespace
from tests.contract.wire.transactions import TXNS, TransactionClient, said
from tests.kits.contract.passwords import READER, basic
from tests.kits.contract.wire import Target

NAMESPACES, POINTERS = "/v1/namespaces", "/v1/pointers"
NEXT = "Oplog-Next"


def whole(target: Target, path: str) -> list[dict[str, Any]]:
    reply = target.request("GET", path)
    assert (reply.status, reply.header(NEXT)) == (200, None), reply
    found: list[dict[str, Any]] = reply.json
    return found


def paged(target: Target, path: str, limit: int) -> list[dict[str, Any]]:
    """Read a list in pages. Only the last one is not full."""
    found, after = [], ""
    while True:
        reply = target.request("GET", f"{path}?limit={limit}{after}")
        assert reply.status == 200, reply
        found += reply.json
        if (cursor := reply.header(NEXT)) is None:
            assert len(reply.json) <= limit
            return found
        assert len(reply.json) == limit
        after = f"&after={cursor}"


def test_namespaces_are_listed_with_the_numbers_of_their_topics(target: Target) -> None:
    namespace = fresh_namespace()
    topics = [TopicClient(target, f"{namespace}/{name}").create() for name in "ab"]
    found = whole(target, NAMESPACES)
    assert {"name": namespace, "topics": 2} in found
    system = len(whole(target, f"{NAMESPACES}/system/topics"))
    assert {"name": "system", "topics": system} in found
    assert found == sorted(found, key=lambda each: each["name"])
    for limit in (1, 2, 1000):
        assert paged(target, NAMESPACES, limit) == found
    for topic in topics:
        topic.request("DELETE")
    assert namespace not in {each["name"] for each in whole(target, NAMESPACES)}


def test_pages_of_topics_are_stable_while_topics_come_and_go(target: Target) -> None:
    namespace = fresh_namespace()
    made = {n: TopicClient(target, f"{namespace}/{n}").create({"ttl": 60}) for n in "bdfh"}
    path = f"{NAMESPACES}/{namespace}/topics"
    for limit in (1, 3, 4, 5):
        assert paged(target, path, limit) == whole(target, path)
    reply = target.request("GET", f"{path}?limit=2")
    assert [each["name"] for each in reply.json] == ["b", "d"]
    made["b"].request("DELETE")
    made["d"].request("DELETE")
    for name in "ae":
        TopicClient(target, f"{namespace}/{name}").create()
    rest = target.request("GET", f"{path}?after={reply.header(NEXT)}")
    assert [each["name"] for each in rest.json] == ["e", "f", "h"]
    system = f"{NAMESPACES}/system/topics"
    TransactionClient(target, group="z" + os.urandom(4).hex())
    assert paged(target, system, 1) == whole(target, system)
    names = [each["name"] for each in paged(target, system, 2)]
    assert names == sorted(names)
    assert {"oplog"} < {*names}


def test_a_list_shows_topics_as_each_is_shown(target: Target) -> None:
    namespace = fresh_namespace()
    made = [TopicClient(target, f"{namespace}/{n}") for n in "ab"]
    made[0].create()
    made[1].create({"ttl": 60})
    found = whole(target, f"{NAMESPACES}/{namespace}/topics")
    assert found == [each.request("GET").json for each in made]


def test_open_pointers_of_all_topics_are_listed_the_oldest_first(target: Target) -> None:
    namespace = fresh_namespace()
    one, two = [TopicClient(target, f"{namespace}/{name}").create() for name in "ab"]
    PointerClient(one, 70).publish("a")
    PointerClient(two, 70).store("b")
    PointerClient(two, 60).publish("c")
    found = whole(target, POINTERS)
    own = [each for each in found if each["namespace"] == namespace]
    shown = {(each["topic"], each["pointer"], each["state"], each["holds"]) for each in own}
    assert shown == {
        ("a", "70", "open", True),
        ("b", "70", "open", False),
        ("b", "60", "open", True),
    }
    assert [each["begun_at"] for each in found] == sorted(each["begun_at"] for each in found)
    of_topic = target.request("GET", f"{two.path}/pointers").json
    members = ("pointer", "begun_at", "expires_at", "published")
    in_two = [{name: each[name] for name in members} for each in own if each["topic"] == "b"]
    assert sorted(in_two, key=str) == sorted(of_topic, key=str)
    for limit in (1, 2, 1000):
        assert paged(target, POINTERS, limit) == found
        assert paged(target, f"{two.path}/pointers", limit) == of_topic
    two.request("DELETE")
    assert {
        each["topic"] for each in whole(target, POINTERS) if each["namespace"] == namespace
    } == {"a"}
    report(target, 70, "commit", one)
    assert not [each for each in whole(target, POINTERS) if each["namespace"] == namespace]


def test_leases_are_listed_by_name(target: Target) -> None:
    leases = [LeaseClient(target) for _ in range(3)]
    for lease in leases:
        lease.poll(note="n")
    leases[0].release("a", 1)
    found = whole(target, LEASES)
    assert [each["name"] for each in found] == sorted(each["name"] for each in found)
    by_name = {each["name"]: each for each in found}
    for lease in leases:
        members = {**by_name[lease.name], "expires_in_ms": 0}
        assert members == {**lease.shown(), "expires_in_ms": 0}
    for limit in (1, 2, 1000):
        assert [each["name"] for each in paged(target, LEASES, limit)] == [*by_name]


def test_transactions_are_listed_in_pages(target: Target) -> None:
    made = [TransactionClient(target) for _ in range(5)]
    ids = [each.id for each in made]
    for limit in (1, 2, 1000):
        found = [each["txn"] for each in paged(target, TXNS, limit)]
        assert [id_ for id_ in found if id_ in ids] == sorted(ids, reverse=True)
    for each in made:
        each.abort()


@on_one_store
@pytest.mark.parametrize("path", [NAMESPACES, POINTERS, LEASES, TXNS, f"{NAMESPACES}/n/topics"])
def test_what_is_asked_of_a_list_is_checked(target: Target, path: str) -> None:
    for limit in ("0", "1001", "-1", "x", ""):
        sentence = said(target.request("GET", f"{path}?limit={limit}"), 400)
        assert sentence == "limit: must be a whole number from 1 to 1,000"
    for after in ("x", "_", "W10", "%C3%A9", "A" * 5000, "bnVsbA", "MS41"):
        sentence = said(target.request("GET", f"{path}?limit=1&after={after}"), 400)
        assert sentence == "after: must be what Oplog-Next of a page says"


@on_one_store
@pytest.mark.parametrize("path", [NAMESPACES, POINTERS, LEASES])
def test_a_list_needs_the_right_to_read(guarded: Target, path: str) -> None:
    assert guarded.request("GET", path).status == 401
    assert guarded.request("GET", path, None, basic(READER)).status == 200
    assert guarded.request("HEAD", path, None, basic(READER)).body == b""
