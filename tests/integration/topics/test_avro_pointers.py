"""Publish, store, roll back and poll under pointers in Avro, with fastavro as the client."""

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from tests.kits.agents.agent import Agent
from tests.kits.topics.avro_client import MAX_POINTER, TEPHRA, PointerClient


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@pytest.fixture
def client(agent: Agent, request: pytest.FixtureRequest) -> PointerClient:
    client = PointerClient(agent, f"avro/{request.node.name}")
    assert agent.request("PUT", client.path).status == 200
    return client


def test_the_answer_to_a_publish_is_the_body_of_its_rollback(client: PointerClient) -> None:
    answer = client.send("publish", b"a", b"\xff")
    info: Any = fastavro.schemaless_reader(io.BytesIO(answer.body), client.info_schema, None)
    assert info["transactionWritePointer"] == TEPHRA
    polled = client.poll()
    assert [payload for _, payload in polled] == [b"a", b"\xff"]
    assert [id_[:10] for id_, _ in polled] == [
        each["publishTimestamp"].to_bytes(8, "big") + each["sequenceId"].to_bytes(2, "big")
        for each in info["messages"]
    ]
    client.published(b"b")
    for _ in range(2):
        done = client.post("rollback", answer.body)
        assert (done.status, done.body) == (200, b"")
    assert client.payloads() == [b"b"]
    assert client.post("rollback", client.info([])).status == 200
    assert client.payloads() == []


def test_stored_messages_are_published_without_messages(client: PointerClient) -> None:
    payloads = [b"%d" % k for k in range(20)]
    stored = client.send("store", *payloads)
    assert (stored.status, stored.body) == (200, b"")
    assert client.payloads() == []
    info = client.published()
    assert (len(info["messages"]), client.published()) == (1, info)
    assert client.payloads() == payloads
    first = client.poll(limit=6)
    assert [payload for _, payload in first] == payloads[:6]
    rest = client.poll(first[-1][0], inclusive=False)
    assert [payload for _, payload in rest] == payloads[6:]


def test_a_snapshot_is_json_in_the_transaction_of_a_poll(client: PointerClient) -> None:
    client.published(b"under")
    client.publish(b"plain")
    held = client.try_poll(transaction=json.dumps({"readPointer": 5}).encode())
    assert (held.status, held.headers["oplog-held-by"], held.body) == (200, str(TEPHRA), b"\0")
    assert client.payloads(readPointer=MAX_POINTER) == [b"under", b"plain"]
    assert client.payloads(readPointer=MAX_POINTER, invalid=[str(TEPHRA)]) == [b"plain"]
    assert client.payloads(readPointer=5, writePointer=TEPHRA) == [b"under", b"plain"]
    many = client.payloads(readPointer=MAX_POINTER, inProgress=[*range(99_999)])
    assert many == [b"under", b"plain"]


def test_a_publish_of_nothing_has_no_place(client: PointerClient) -> None:
    answer = client.post("publish", b"\x00\x0a\x00")
    assert (answer.status, answer.body) == (200, b"\x00\x0a\x00")


def test_bad_bodies_name_their_part(client: PointerClient) -> None:
    info = {"publishTimestamp": 1, "sequenceId": 65_536}
    for action, body, sentence in (
        ("store", b"\x02\x02\x02a\x00", "transactionWritePointer: must not be null"),
        ("store", b"\x00\x0a\x00", "messages: there is none"),
        ("rollback", client.info([], None), "transactionWritePointer: must not be null"),
        (
            "rollback",
            client.info([info]),
            "messages[0].sequenceId: must be a whole number from 0 to 65535",
        ),
        ("rollback", b"\x00\x0a", "messages: the Avro body ends here"),
        ("poll", b"\x04\x01\x02\x00\x02{", "transaction: is not valid JSON"),
        ("poll", b"\x04\x01\x02\x00\x04{}", "transaction.readPointer: is required"),
    ):
        answer = client.post(action, body)
        assert answer.status == 400, answer
        assert answer.json["detail"].startswith(sentence), action
    for pointer in (-1, MAX_POINTER + 1):
        for action in ("publish", "store"):
            answer = client.send(action, b"a", pointer=pointer)
            assert answer.json["detail"].startswith("transactionWritePointer: must be a whole")
    assert client.payloads() == []


def test_pointers_can_be_used_in_both_encodings_at_once(client: PointerClient) -> None:
    path, json_type = client.path, {"Content-Type": "application/json"}
    body = json.dumps({"transactionWritePointer": TEPHRA, "messages": ["in JSON"]}).encode()
    assert client.agent.request("POST", f"{path}/store", body, json_type).status == 200
    client.send("store", b"in Avro")
    info = client.published()
    assert client.payloads() == [b"in JSON", b"in Avro"]
    again = client.agent.request(
        "POST", f"{path}/publish", b'{"transactionWritePointer": "%d"}' % TEPHRA, json_type
    )
    assert again.json == info
    assert client.agent.request("POST", f"{path}/rollback", again.body, json_type).status == 200
    assert client.payloads() == []
