"""Short ways to use named consumers over HTTP."""

import json
import os
from typing import Any

from tests.kits.contract.wire import JSON, SSE, Headers, RawStream, Reply, Target, id_of

CONSUMERS = "/v1/consumers"
OPLOG = "system/oplog"


class ConsumerClient:
    """A named consumer of an agent under test. ``name``: by default an unused one."""

    def __init__(self, target: Target, name: str = "", headers: Headers = ()) -> None:
        self.name = name or "c" + os.urandom(8).hex()
        self.path = f"{CONSUMERS}/{self.name}"
        self._target = target
        self._headers = dict(headers)

    def at(self, target: Target, headers: Headers = ()) -> "ConsumerClient":
        """Return the same consumer at another agent, or for another client."""
        return ConsumerClient(target, self.name, headers)

    def request(
        self, method: str, path: str = "", body: Any = None, headers: Headers = ()
    ) -> Reply:
        """``body``: bytes or None as they are, or a value to send as JSON."""
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        typed = {} if raw is None else JSON
        given = {**typed, **self._headers, **dict(headers)}
        return self._target.request(method, self.path + path, raw, given)

    def put(self, log: str = OPLOG, **members: Any) -> Reply:
        return self.request("PUT", "", {"log": log, **members})

    def create(self, log: str = OPLOG, **members: Any) -> "ConsumerClient":
        reply = self.put(log, **members)
        assert reply.status == 201, reply
        return self

    def shown(self) -> dict[str, Any]:
        reply = self.request("GET")
        assert reply.status == 200, reply
        shown: dict[str, Any] = reply.json
        return shown

    def shard(self, number: int = 0) -> dict[str, Any]:
        shard: dict[str, Any] = self.shown()["shards"][number]
        assert shard["shard"] == number
        return shard

    def position(self, number: int = 0) -> str:
        position: str = self.shard(number)["position"]
        return position

    def seeking(self, position: str, **members: Any) -> Reply:
        return self.request("POST", "/seek", {"position": position, **members})

    def acknowledging(self, term: int, id_: str, **members: Any) -> Reply:
        return self.request("POST", "/position", {"term": term, "id": id_, **members})

    def acknowledge(self, stream: "ShardStream", id_: str) -> None:
        """Acknowledge in the term of a stream."""
        reply = self.acknowledging(stream.term, id_, shard=stream.shard)
        assert (reply.status, reply.body) == (204, b""), reply

    def follow(self, query: str = "", headers: Headers = ()) -> "ShardStream":
        """Open a stream. ``query``: as in ``?shard=1``."""
        given = {**self._headers, **SSE, **dict(headers)}
        return ShardStream(self._target, f"{self.path}/stream{query}", given)


class ShardStream(RawStream):
    """The stream of one shard."""

    @property
    def term(self) -> int:
        return int(self.header("Oplog-Term") or 0)

    @property
    def shard(self) -> int:
        return int((self.header("Oplog-Shard") or "0/1").partition("/")[0])

    @property
    def last_id(self) -> str:
        """The id of the last block that was received."""
        return id_of(bytes(self.received).rsplit(b"\n\n", 2)[-2] + b"\n\n")
