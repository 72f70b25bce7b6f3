"""Transactions of an agent under test, over HTTP."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, Self

from tests.kits.agents.agent import DEADLINE, Agent, Answer
from tests.kits.agents.topics import JSON, Polled, Topic, ok, wait_for_messages

COMMITTED = "read_committed"


class Talk:
    """A connection to an agent that stays open."""

    def __init__(self, agent: Agent) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE)

    def post(self, path: str, body: object) -> Answer:
        return self._request("POST", path, json.dumps(body))

    def get(self, path: str) -> Answer:
        return self._request("GET", path, None)

    def _request(self, method: str, path: str, body: str | None) -> Answer:
        return self.send(method, path, body, JSON)

    def send(
        self, method: str, path: str, body: str | bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        self._connection.request(method, path, body, headers)
        with self._connection.getresponse() as response:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read())

    def close(self) -> None:
        self._connection.close()


class Txn:
    """A transaction at one agent. Methods that return no Answer fail unless it is 200."""

    def __init__(self, agent: Agent, id_: str) -> None:
        self.agent = agent
        self.id = id_
        self.path = f"/v1/txns/{id_}"

    @classmethod
    def begin(cls, agent: Agent, **members: object) -> Self:
        answer = agent.request("POST", "/v1/txns", members)
        assert answer.status == 201, answer
        return cls(agent, answer.json["txn"])

    def at(self, agent: Agent) -> "Txn":
        return Txn(agent, self.id)

    def try_write(self, *records: dict[str, object]) -> Answer:
        return self.agent.request("POST", f"{self.path}/records", {"records": records})

    def write(self, *records: dict[str, object]) -> Any:
        return ok(self.try_write(*records)).json

    def try_commit(self, records: int) -> Answer:
        return self.agent.request("POST", f"{self.path}/commit", {"records": records})

    def commit(self, records: int) -> Any:
        return ok(self.try_commit(records)).json

    def try_abort(self) -> Answer:
        return self.agent.request("POST", f"{self.path}/abort")

    def abort(self) -> Any:
        return ok(self.try_abort()).json

    def shown(self) -> Any:
        return ok(self.agent.request("GET", self.path)).json


def record(topic: Topic | str, lsn: int, payload: object) -> dict[str, object]:
    name = topic if isinstance(topic, str) else topic.name
    return {"topic": name, "lsn": lsn, "payload": payload}


def records(topic: Topic | str, *payloads: object, first: int = 0) -> list[dict[str, object]]:
    return [record(topic, lsn, payload) for lsn, payload in enumerate(payloads, first)]


def committed(topic: Topic) -> list[str]:
    """Return the payloads that a committed reader polls, one page after another."""
    return [each.payload for each in poll_committed(topic)]


def poll_committed(topic: Topic, limit: int = 1000) -> list[Polled]:
    messages = page = topic.poll(isolation=COMMITTED, limit=limit)
    while page:
        page = topic.poll(page[-1].id, inclusive=False, isolation=COMMITTED, limit=limit)
        messages = messages + page
    return messages


def wait_for_committed(topic: Topic, *payloads: str) -> list[Polled]:
    """Poll until a committed reader sees these: an agent learns of others a moment later."""
    return wait_for_messages(topic, payloads, lambda: poll_committed(topic))
