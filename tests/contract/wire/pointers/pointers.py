"""Short ways to use pointers of foreign transactions over HTTP."""

import json
from typing import Any

from tests.contract.wire.topics.topics import TopicClient
from tests.kits.contract.wire import JSON, Headers, Reply, Target

# As the transaction manager Tephra numbers its transactions: a time in ms, times a million.
TEPHRA = 1_800_000_000_000_000_001
MAX_POINTER = (1 << 62) - 1

HELD_BY = "Oplog-Held-By"
WRITES = ("publish", "store", "rollback")


class PointerClient:
    """A pointer in one topic. ``headers``: of every request."""

    def __init__(self, topic: TopicClient, pointer: int = TEPHRA, headers: Headers = ()) -> None:
        self.topic = topic
        self.pointer = pointer
        self._headers = {**JSON, **dict(headers)}

    def request(self, action: str, headers: Headers = (), /, **members: Any) -> Reply:
        """Send publish, store or rollback with this pointer."""
        body = {"transactionWritePointer": self.pointer, **members}
        return self.topic.request("POST", f"/{action}", body, {**self._headers, **dict(headers)})

    def publish(self, *payloads: Any) -> dict[str, Any]:
        """Publish these messages, or those that are stored. Return the answer."""
        reply = self.request("publish", **({"messages": payloads} if payloads else {}))
        assert (reply.status, reply.header("Content-Type")) == (200, "application/json"), reply
        answer: dict[str, Any] = reply.json
        assert answer["transactionWritePointer"] == self.pointer
        return answer

    def store(self, *payloads: Any) -> None:
        empty(self.request("store", messages=payloads))

    def rollback(self, **members: Any) -> None:
        empty(self.request("rollback", **members))

    def entries(self) -> list[dict[str, Any]]:
        return shown(self.topic, "/entries?after=0&limit=1000")

    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.entries()]


def empty(reply: Reply) -> None:
    assert (reply.status, reply.body) == (200, b""), reply


def shown(topic: TopicClient, path: str) -> list[dict[str, Any]]:
    reply = topic.request("GET", path)
    assert (reply.status, reply.header("Access-Control-Allow-Origin")) == (200, "*"), reply
    found: list[dict[str, Any]] = reply.json
    return found


def keys(answer: dict[str, Any]) -> list[str]:
    """Return the keys for a rollback of the entries in the answer to a publish."""
    return [
        f"{each['publishTimestamp']:016x}{each['sequenceId']:04x}" for each in answer["messages"]
    ]


def report(
    target: Target, pointer: int | str, end: str, *topics: Any, headers: Headers = JSON
) -> Reply:
    """Report commit or abort. ``topics``: clients or names."""
    names = [each.name if isinstance(each, TopicClient) else each for each in topics]
    body = json.dumps({"topics": names}).encode()
    return target.request("POST", f"/v1/pointers/{pointer}/{end}", body, headers)


def snapshot(read: int, **members: Any) -> dict[str, Any]:
    """Return the ``transaction`` of a poll."""
    return {"readPointer": read, **members}


def seen(topic: TopicClient, **transaction: Any) -> tuple[list[str], str | None]:
    """Return the payloads that a reader with a snapshot gets, and the pointer that holds it."""
    reply = topic.poll(transaction=transaction)
    return [each["payload"] for each in reply.json], reply.header(HELD_BY)


def pointers(topic: TopicClient, query: str = "") -> list[dict[str, Any]]:
    return shown(topic, f"/pointers{query}")


def committed(topic: TopicClient) -> tuple[list[str], str | None]:
    """Return the payloads that readers get by default, and the pointer that holds them."""
    reply = topic.poll(isolation=None)
    return [each["payload"] for each in reply.json], reply.header(HELD_BY)


def members_of(action: str) -> dict[str, Any]:
    return {} if action == "rollback" else {"messages": ["a"]}
