"""Transactions: shown, listed, in the logs of their groups, and in the documentation."""

from typing import Any

import pytest

from tests.contract.wire.store_kinds import EACH_DRIVER, kinds_of_store, on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.contract.wire.transactions import (
    TXNS,
    UNKNOWN,
    TransactionClient,
    events,
    post,
    record,
    said,
)
from tests.kits.contract.wire import JSON, Target, fresh_type, wait_until

store_kind = kinds_of_store(EACH_DRIVER)

GROUP_LOG = "system/_txn.default"

# --- Show and list ---


@on_one_store
@pytest.mark.parametrize("id_", [UNKNOWN, "5", "-1", "x", "9" * 19, "9" * 30, f"0{UNKNOWN}"])
def test_an_unknown_or_malformed_id_is_not_found(target: Target, id_: str) -> None:
    body = {"records": [record("ns/t", 0)]}
    assert id_ in said(target.request("GET", f"{TXNS}/{id_}"), 404)
    assert said(post(target, f"/{id_}/records", body), 404)
    assert id_ in said(post(target, f"/{id_}/commit", {"records": 0}), 404)
    assert id_ in said(post(target, f"/{id_}/abort"), 404)


def test_transactions_are_listed_by_state_and_group_newest_first(target: Target) -> None:
    group = fresh_type()
    txns = [TransactionClient(target, group=group) for _ in range(4)]
    txns[1].commit(0)
    txns[2].abort()

    def listed(query: str) -> list[int]:
        found = target.request("GET", f"{TXNS}?group={group}{query}").json
        numbers = {txn.id: index for index, txn in enumerate(txns)}
        assert [each for each in found if each["group"] != group] == []
        return [numbers[each["txn"]] for each in found]

    assert sorted(listed("")) == [0, 1, 2, 3]
    assert listed("") == sorted(listed(""), key=lambda k: -int(txns[k].id))
    assert sorted(listed("&state=open")) == [0, 3]
    assert listed("&state=committed") == [1]
    assert listed("&state=aborted") == [2]
    assert listed("&state=committing") == []
    assert listed("&limit=2") == listed("")[:2]
    found = target.request("GET", f"{TXNS}?limit=1000&state=committed").json
    assert txns[1].shown() in found
    assert target.request("GET", f"{TXNS}?group={fresh_type()}").json == []


@on_one_store
@pytest.mark.parametrize(
    ("query", "start"),
    [
        ("state=done", "state: must be open, committing, committed, aborted"),
        ("state=", "state: "),
        ("group=a%20b", "group: "),
        ("group=", "group: "),
        ("limit=0", "limit: "),
        ("limit=1001", "limit: "),
        ("limit=x", "limit: "),
    ],
)
def test_a_bad_list_names_its_parameter(target: Target, query: str, start: str) -> None:
    assert said(target.request("GET", f"{TXNS}?{query}"), 400).startswith(start)


@on_one_store
def test_each_get_of_a_transaction_has_a_head(target: Target) -> None:
    group = fresh_type()
    txn = TransactionClient(target, group=group)
    for path in (txn.path, f"{TXNS}?group={group}"):
        head, get = (target.request(method, path) for method in ("HEAD", "GET"))
        assert (head.status, head.body) == (200, b"")
        assert head.header("Content-Length") == get.header("Content-Length")
        assert get.header("Access-Control-Allow-Origin") == "*"


@on_one_store
def test_other_methods_of_a_transaction_say_which_there_are(target: Target) -> None:
    txn = TransactionClient(target)
    for path, allowed in {
        TXNS: "GET, HEAD, OPTIONS, POST",
        txn.path: "GET, HEAD, OPTIONS",
        f"{txn.path}/commit": "OPTIONS, POST",
    }.items():
        reply = target.request("PUT", path)
        assert (reply.status, reply.header("Allow")) == (405, allowed)
    assert target.request("GET", f"{txn.path}/nothing").status == 404


# --- Commit logs ---


def test_the_commit_log_of_a_group_is_a_topic_that_only_the_agent_writes(target: Target) -> None:
    group = fresh_type()
    log = TopicClient(target, f"system/_txn.{group}")
    assert log.request("GET").status == log.poll().status == 404
    assert log.request("GET", "/stream", headers={"Accept": "text/event-stream"}).status == 404
    committed, aborted = (TransactionClient(target, group=group) for _ in range(2))
    late = TransactionClient(target, group=group, timeout_ms=1)
    done = committed.commit(0)
    aborted.abort()
    assert wait_until(lambda: late.shown()["state"] == "aborted")
    assert log.request("GET").json == {"name": f"_txn.{group}", "properties": {"ttl": "604800"}}
    names = [each["name"] for each in target.request("GET", log.topics).json]
    assert names == sorted(names)
    assert {"oplog", f"_txn.{group}"} <= {*names}
    for txn, end in (
        (committed, {"event": "commit", "records": 0}),
        (aborted, {"event": "abort", "reason": "aborted by the client"}),
        (late, {"event": "abort", "reason": "timed out"}),
    ):
        begin = {"event": "begin", "expires_at": txn.begun["expires_at"]}
        assert events(target, log.name, txn.id) == [
            {**each, "txn": txn.id} for each in (begin, end)
        ]
    ids = [each["id"] for each in log.polled() if each["key"] == committed.id]
    assert ids == [done["begin"], done["commit"]]
    with log.follow("0") as stream:
        assert stream.block().startswith(f"id: {done['begin']}\n".encode())
    for method, path in (
        ("PUT", ""),
        ("PUT", "/properties"),
        ("DELETE", ""),
        ("POST", "/publish"),
    ):
        reply = log.request(method, path, {"messages": ["a"]} if path == "/publish" else None, JSON)
        assert "reserved" in said(reply, 409)
    unused = TopicClient(target, f"system/_txn.{fresh_type()}")
    assert unused.publish("a").status == 409


# --- Documentation ---


@on_one_store
def test_transactions_are_described_with_examples_that_work(target: Target) -> None:
    TopicClient(target, "shop/orders").request("PUT")
    paths = target.request("GET", "/openapi.json").json["paths"]
    found = {path: methods for path, methods in paths.items() if path.startswith(TXNS)}
    one = f"{TXNS}/{{txn}}"
    assert {path: {*methods} for path, methods in found.items()} == {
        TXNS: {"get", "post"},
        one: {"get"},
        f"{one}/records": {"post"},
        f"{one}/commit": {"post"},
        f"{one}/abort": {"post"},
    }
    codes = {*found[f"{one}/commit"]["post"]["responses"]}
    refused = {"400", "401", "403", "404", "408", "409", "412", "413", "415", "429", "431", "503"}
    assert codes == {"200"} | refused
    begins = found[TXNS]["post"]
    assert {*begins["responses"]} == codes | {"201", "507"}
    whole = post(target, "", {"records": _example(found[f"{one}/records"]["post"])["records"]})
    shown = begins["responses"]["200"]["content"]["application/json"]["example"]
    assert (whole.status, whole.json.keys()) == (200, shown.keys())
    begun = post(target, "", _example(begins)).json
    path = f"/{begun['txn']}"
    for name in ("records", "commit"):
        described = found[f"{one}/{name}"]["post"]
        reply = post(target, f"{path}/{name}", _example(described))
        answer = described["responses"]["200"]["content"]["application/json"]["example"]
        assert (reply.status, reply.json.keys()) == (200, answer.keys())


def _example(described: dict[str, Any]) -> Any:
    return described["requestBody"]["content"]["application/json"]["example"]
