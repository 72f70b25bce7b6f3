"""Unknown members of operations: ignored, counted, and named in the answer."""

import json
from typing import Any

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TransactionClient
from tests.kits.contract.wire import JSON, NDJSON, Headers, Reply, Target, fresh_type, wait_until

NAME = "Oplog-Ignored"


def written(**members: Any) -> dict[str, Any]:
    return {"event": "insert", "type": fresh_type(), "id": "a", **members}


def counted(target: Target) -> int:
    count: int = target.status()["events_with_ignored_members"]
    return count


def send(target: Target, body: Any, headers: Headers = JSON) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return target.request("POST", "/", raw, headers)


@on_one_store
def test_an_operation_without_unknown_members_has_no_such_header(target: Target) -> None:
    before = counted(target)
    for body in (written(), written(parents=None, timestamp=None), [written(parents=["a"])]):
        reply = send(target, body)
        assert reply.status in (200, 204)
        assert reply.header(NAME) is None
    assert counted(target) == before


@on_one_store
def test_the_answer_names_the_members_that_are_ignored(target: Target) -> None:
    before = counted(target)
    reply = send(target, written(data={"title": "x"}, parent="user/ada"))
    assert (reply.status, reply.header(NAME)) == (204, "data, parent")
    assert counted(target) == before + 1


@on_one_store
@pytest.mark.parametrize("headers", [JSON, NDJSON], ids=["array", "ndjson"])
def test_the_answer_to_a_batch_names_those_of_all_operations_once(
    target: Target, headers: Headers
) -> None:
    batch = [written(size=1), written(), written(size=2, kind="x"), written(kind="y")]
    body = (
        json.dumps(batch).encode()
        if headers == JSON
        else b"\n".join(json.dumps(each).encode() for each in batch)
    )
    before = counted(target)
    reply = send(target, body, headers)
    assert (reply.status, reply.json) == (200, {"ingested": 4})
    assert reply.header(NAME) == "size, kind"
    assert counted(target) == before + 3


@on_one_store
@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a.b-c_D9"], "a.b-c_D9"),
        (["x" * 64, "y" * 65], f"{'x' * 64}, ?"),
        (["two words", "a,b", "", "Größe", "\r\nSet-Cookie: a=b"], "?"),
        ([f"n{number}" for number in range(9)], ", ".join(f"n{number}" for number in range(8))),
        (["?", "Event", "ID"], "?, Event, ID"),
    ],
    ids=["letters", "length", "others", "number", "case"],
)
def test_only_harmless_names_are_told_and_at_most_eight(
    target: Target, names: list[str], told: str
) -> None:
    reply = send(target, written(**dict.fromkeys(names, 1)))
    assert (reply.status, reply.header(NAME)) == (204, told)
    assert reply.header("Set-Cookie") is None


@on_one_store
def test_an_invalid_operation_is_refused_as_before(target: Target) -> None:
    before = counted(target)
    for body in ({"data": 1, **written(event=5)}, {**written(id=""), "data": 1}):
        reply = send(target, body)
        assert reply.status == 400
        assert reply.header(NAME) is None
    assert counted(target) == before


@on_one_store
def test_operations_by_udp_are_counted(target: Target) -> None:
    before = counted(target)
    for _ in range(3):
        target.send_udp(json.dumps(written(data=1)).encode())
    assert wait_until(lambda: counted(target) == before + 3)


@on_one_store
def test_a_publish_to_the_oplog_and_the_records_of_a_transaction_name_them(
    target: Target,
) -> None:
    reply = TopicClient(target, OPLOG).publish({"payload": json.dumps(written(data=1))})
    assert (reply.status, reply.header(NAME)) == (200, "data")
    record = {"topic": OPLOG, "lsn": 0, "payload": written(size=1)}
    reply = TransactionClient(target).records(record)
    assert (reply.status, reply.header(NAME)) == (200, "size")
