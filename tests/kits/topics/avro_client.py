"""Clients of topics in Avro over HTTP, with fastavro."""

import io
import json
from typing import Any

import fastavro

from tests.kits.agents.agent import Agent, Answer

TEPHRA = 1_800_000_000_000_000_001
MAX_POINTER = (1 << 62) - 1
AVRO = {"Content-Type": "avro/binary"}
NAMES = ("PublishRequest", "PollRequest", "PollResponse")
OPERATION = {"event": "insert", "type": "video", "id": "x1", "timestamp": "2025-11-20T10:00:00Z"}


class Client:
    """A client that knows the schemas only as the agent serves them."""

    def __init__(self, agent: Agent, topic: str) -> None:
        namespace, _, name = topic.partition("/")
        self.agent = agent
        self.path = f"/v1/namespaces/{namespace}/topics/{name}"
        self.publish_schema, self.poll_schema, self.answer_schema = (
            fastavro.parse_schema(agent.request("GET", f"/v1/schemas/{each}").json)
            for each in NAMES
        )

    def publish(self, *payloads: bytes, query: str = "") -> Answer:
        body = written(self.publish_schema, {"transactionWritePointer": None, "messages": payloads})
        return self.agent.request("POST", f"{self.path}/publish{query}", body, AVRO)

    def try_poll(self, start: bytes | int | None = None, **members: Any) -> Answer:
        """Poll all messages, also of open transactions, unless ``members`` have a snapshot."""
        request = {"inclusive": True, "limit": None, "transaction": None, **members}
        body = written(self.poll_schema, {"startFrom": start, **request})
        query = "" if request["transaction"] else "?isolation=read_uncommitted"
        return self.agent.request("POST", f"{self.path}/poll{query}", body, AVRO)

    def poll(self, start: bytes | int | None = None, **members: Any) -> list[tuple[bytes, bytes]]:
        answer = self.try_poll(start, **members)
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "avro/binary"
        read: Any = fastavro.schemaless_reader(io.BytesIO(answer.body), self.answer_schema, None)
        return [(message["id"], message["payload"]) for message in read]


def written(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


class PointerClient(Client):
    """A client that publishes under ``pointer``."""

    def __init__(self, agent: Agent, topic: str, pointer: int = TEPHRA) -> None:
        super().__init__(agent, topic)
        self.pointer = pointer
        self.info_schema = fastavro.parse_schema(
            agent.request("GET", "/v1/schemas/PublishedInfo").json
        )

    def send(self, action: str, *payloads: bytes, pointer: int | None = None) -> Answer:
        given = self.pointer if pointer is None else pointer
        body = {"transactionWritePointer": given, "messages": payloads}
        return self.post(action, written(self.publish_schema, body))

    def post(self, action: str, body: bytes) -> Answer:
        return self.agent.request("POST", f"{self.path}/{action}", body, AVRO)

    def published(self, *payloads: bytes) -> Any:
        """Publish. Return the answer, decoded."""
        answer = self.send("publish", *payloads)
        assert (answer.status, answer.headers["content-type"]) == (200, "avro/binary"), answer
        return fastavro.schemaless_reader(io.BytesIO(answer.body), self.info_schema, None)

    def info(self, messages: list[dict[str, int]], pointer: int | None = TEPHRA) -> bytes:
        return written(self.info_schema, {"transactionWritePointer": pointer, "messages": messages})

    def payloads(self, **transaction: Any) -> list[bytes]:
        """Poll, with a snapshot if members of one are given."""
        snapshot = json.dumps(transaction).encode() if transaction else None
        return [payload for _, payload in self.poll(transaction=snapshot)]
