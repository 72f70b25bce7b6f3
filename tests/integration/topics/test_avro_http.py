"""Publish and poll in Avro over HTTP, with fastavro as the client."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.contract.wire import wait_until
from tests.kits.topics.avro_client import AVRO, NAMES, OPERATION, Client, written


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@pytest.fixture
def client(agent: Agent, request: pytest.FixtureRequest) -> Client:
    client = Client(agent, f"avro/{request.node.name}")
    assert agent.request("PUT", client.path).status == 200
    return client


def test_messages_published_in_avro_are_polled_in_avro_and_json(client: Client) -> None:
    payloads = [b"text", "é".encode(), b"\xff\0", b""]
    answer = client.publish(*payloads)
    assert (answer.status, answer.body) == (200, b"")
    polled = client.poll()
    assert [payload for _, payload in polled] == payloads
    in_json = client.agent.request("POST", f"{client.path}/poll").json
    assert [message["id"] for message in in_json] == [id_.hex() for id_, _ in polled]
    assert [len(id_) for id_, _ in polled] == [20] * 4
    assert in_json[2] == {"id": polled[2][0].hex(), "payload": "/wA=", "encoding": "base64"}


def test_polls_in_avro_start_at_an_id_or_a_time(client: Client) -> None:
    client.publish(b"a", b"b", b"c")
    messages = client.poll()
    (first, _), (second, _), _ = messages
    assert client.poll(second) == messages[1:]
    assert client.poll(second, inclusive=False) == messages[2:]
    assert client.poll(limit=1) == messages[:1]
    assert client.poll(int.from_bytes(first[:8], "big")) == messages
    assert client.poll(int.from_bytes(first[:8], "big") + 1) == []


def test_key_headers_and_a_null_payload_do_not_show_in_avro(client: Client) -> None:
    messages = [{"payload": None}, {"payload": "a", "key": "k", "headers": [["n", "v"]]}]
    path = f"{client.path}/publish"
    assert client.agent.request("POST", path, {"messages": messages}).status == 200
    assert [payload for _, payload in client.poll()] == [b"", b"a"]


def test_the_query_sets_the_time_to_live_of_messages_in_avro(client: Client) -> None:
    assert client.publish(b"short", query="?ttl=1").status == 200
    assert client.publish(b"long").status == 200
    assert wait_until(lambda: [payload for _, payload in client.poll()] == [b"long"])
    answer = client.publish(b"none", query="?ttl=0")
    assert answer.status == 400
    assert answer.json["detail"] == "ttl: must be 1 to 3,153,600,000 seconds"


def test_the_oplog_is_published_to_and_polled_in_avro(agent: Agent) -> None:
    client = Client(agent, "system/oplog")
    assert client.publish(json.dumps(OPERATION).encode()).status == 200
    ((id_, payload),) = client.poll()
    assert len(id_) == 12
    operation = json.loads(payload)
    assert (operation["event"], operation["type"], operation["id"]) == ("insert", "video", "x1")
    assert client.publish(payload).status == 200
    again = client.poll(id_, inclusive=False)
    assert [payload for _, payload in again] == [payload]
    answer = client.publish(payload, b'{"event":"insert"}')
    assert answer.status == 400
    assert answer.json["detail"] == "messages[1].type: is required"
    answer = client.try_poll(bytes(20))
    assert answer.status == 400
    assert "24" in answer.json["detail"]


def test_a_poll_in_avro_has_its_isolation_in_the_query(client: Client) -> None:
    client.publish(b"a")
    body = written(
        client.poll_schema,
        dict.fromkeys(("startFrom", "limit", "transaction"), None) | {"inclusive": True},
    )
    for path in (client.path, "/v1/namespaces/system/topics/oplog"):
        for isolation, status in (("read_committed", 200), ("read_uncommitted", 200), ("x", 400)):
            path_ = f"{path}/poll?isolation={isolation}"
            answer = client.agent.request("POST", path_, body, AVRO)
            assert answer.status == status
    assert answer.json["detail"] == "isolation: must be read_uncommitted or read_committed"


def test_a_damaged_body_is_answered_with_a_problem_that_names_the_part(client: Client) -> None:
    for action, body, detail in (
        ("publish", b"\x02\x02\x04a", "messages[0]: announces 2 bytes, but 1 follow"),
        ("publish", b"\x02\0", "messages: there is none"),
        ("poll", b"\x04\x01\x02", "transaction: the Avro body ends here"),
    ):
        answer = client.agent.request("POST", f"{client.path}/{action}", body, AVRO)
        assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
        assert answer.json["detail"] == detail
    assert client.poll() == []


def test_a_body_in_avro_may_be_compressed(client: Client) -> None:
    body = written(
        client.publish_schema, {"transactionWritePointer": None, "messages": [b"a" * 1000]}
    )
    headers = {**AVRO, "Content-Encoding": "gzip"}
    path = f"{client.path}/publish"
    assert client.agent.request("POST", path, gzip.compress(body), headers).status == 200
    assert [payload for _, payload in client.poll()] == [b"a" * 1000]


def test_another_type_of_body_is_refused_and_the_answer_names_both(client: Client) -> None:
    for action in ("publish", "poll"):
        answer = client.agent.request(
            "POST", f"{client.path}/{action}", b"x", {"Content-Type": "avro/json"}
        )
        assert answer.status == 415
        assert answer.json["detail"] == (
            "Content-Type avro/json is not understood; use application/json or avro/binary"
        )


def test_schemas_are_served_without_a_password(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "secret") as agent:
        for name in NAMES:
            answer = agent.request("GET", f"/v1/schemas/{name}")
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            head = agent.request("HEAD", f"/v1/schemas/{name}")
            assert (head.status, head.body) == (200, b"")
        answer = agent.request("GET", "/v1/schemas/pollrequest")
        assert answer.status == 404
        assert answer.json["detail"] == (
            "there is no schema pollrequest;"
            " there are PublishRequest, PublishedInfo, RollbackRequest, PollRequest, PollResponse"
        )
