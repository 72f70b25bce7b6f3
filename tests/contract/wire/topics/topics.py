"""Short ways to use a topic over HTTP."""

import json
import os
from typing import Any

from tests.kits.contract.wire import JSON, SSE, Headers, RawStream, Reply, Target

OPLOG = "system/oplog"


class TopicClient:
    """A topic of an agent under test. ``name``: ``namespace/topic``, by default an unused one."""

    def __init__(self, target: Target, name: str = "", headers: Headers = ()) -> None:
        self.name = name or f"{fresh_namespace()}/t"
        self.namespace, _, topic = self.name.partition("/")
        self.topics = f"/v1/namespaces/{self.namespace}/topics"
        self.path = f"{self.topics}/{topic}"
        self._target = target
        self._headers = dict(headers)

    def request(
        self, method: str, path: str = "", body: Any = None, headers: Headers = ()
    ) -> Reply:
        """``body``: bytes as they are, or a value to send as JSON."""
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return self._target.request(
            method, self.path + path, raw, {**self._headers, **dict(headers)}
        )

    def create(self, body: Any = None) -> "TopicClient":
        reply = self.request("PUT", body=body)
        assert reply.status == 200, reply
        return self

    def publish(self, *messages: Any) -> Reply:
        return self.request("POST", "/publish", {"messages": messages}, JSON)

    def store(self, *messages: Any) -> None:
        reply = self.publish(*messages)
        assert (reply.status, reply.body) == (200, b""), reply

    def poll(self, start: Any = None, **members: Any) -> Reply:
        """Poll all messages, also of open transactions, unless ``members`` say otherwise."""
        if not {"isolation", "transaction"} & {*members}:
            members["isolation"] = "read_uncommitted"
        return self.request("POST", "/poll", {"startFrom": start, **members}, JSON)

    def polled(self, start: Any = None, **members: Any) -> list[dict[str, Any]]:
        """Return the messages of a poll without a gap."""
        reply = self.poll(start, **members)
        assert (reply.status, reply.header("Oplog-Gap")) == (200, None), reply
        messages: list[dict[str, Any]] = reply.json
        return messages

    def payloads(self, start: Any = None, **members: Any) -> list[str]:
        return [message["payload"] for message in self.polled(start, **members)]

    def follow(self, last_event_id: str | None = None, query: str = "") -> RawStream:
        given = {**self._headers, **SSE}
        if last_event_id is not None:
            given["Last-Event-ID"] = last_event_id
        return RawStream(self._target, f"{self.path}/stream{query}", given)


def fresh_namespace() -> str:
    return "n" + os.urandom(8).hex()
