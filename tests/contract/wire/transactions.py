"""Short ways to use transactions over HTTP."""

import json
from typing import Any

from tests.contract.wire.topics.topics import TopicClient
from tests.kits.contract.wire import JSON, Headers, Reply, Target

TXNS = "/v1/txns"
# An id that no transaction has.
UNKNOWN = str((1 << 62) + 5)


class TransactionClient:
    """A transaction of an agent under test, begun with ``members``."""

    def __init__(self, target: Target, headers: Headers = (), **members: Any) -> None:
        self._target = target
        self._headers = {**JSON, **dict(headers)}
        reply = post(target, "", members, self._headers)
        assert reply.status == 201, reply
        self.begun: dict[str, Any] = reply.json
        self.id: str = self.begun["txn"]
        self.path = f"{TXNS}/{self.id}"

    def post(self, path: str, body: Any = None, headers: Headers = ()) -> Reply:
        return post(self._target, f"/{self.id}{path}", body, {**self._headers, **dict(headers)})

    def records(self, *records: dict[str, Any]) -> Reply:
        return self.post("/records", {"records": records})

    def write(self, *records: dict[str, Any]) -> dict[str, Any]:
        """Write records. Return the transaction."""
        return _ok(self.records(*records))

    def commit(self, records: int) -> dict[str, Any]:
        return _ok(self.post("/commit", {"records": records}))

    def abort(self) -> dict[str, Any]:
        return _ok(self.post("/abort"))

    def shown(self) -> dict[str, Any]:
        return _ok(self._target.request("GET", self.path, None, self._headers))


def post(target: Target, path: str = "", body: Any = None, headers: Headers = JSON) -> Reply:
    """``body``: bytes or None as they are, or a value to send as JSON."""
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    return target.request("POST", TXNS + path, raw, headers)


def record(topic: TopicClient | str, lsn: int, payload: Any = "a", **members: Any) -> Any:
    name = topic if isinstance(topic, str) else topic.name
    return {"topic": name, "lsn": lsn, "payload": payload, **members}


def _ok(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply
    body: dict[str, Any] = reply.json
    return body


def said(reply: Reply, status: int) -> str:
    assert reply.status == status, reply
    return reply.problem()


def events(target: Target, log: str, id_: str) -> list[dict[str, Any]]:
    """Return the records of a transaction in the commit log of its group."""
    found = TopicClient(target, log).polled()
    assert all(json.loads(each["payload"])["txn"] == each["key"] for each in found)
    return [json.loads(each["payload"]) for each in found if each["key"] == id_]
