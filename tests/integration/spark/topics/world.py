"""A topic with messages, transactions and pointers, and readers of it without Spark."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from oplog_sync.backend import Backend, make_backend
from oplog_sync.errors import AgentRefusedError
from oplog_sync.source.batch import BatchReader
from oplog_sync.source.http import Agents
from oplog_sync.source.options import read_options
from oplog_sync.topics.agent import AgentTopic
from oplog_sync.topics.columns import TopicColumns, topic_schema
from oplog_sync.topics.origin import Offset, TopicOrigin
from oplog_sync.topics.position import TopicOptions, parse_topic
from oplog_sync.topics.store import StoreTopic
from oplogd.model.transaction import Isolation
from tests.kits.agents.agent import Agent, Answer
from tests.kits.agents.topics import JSON, Topic, ok
from tests.kits.agents.transactions import Talk, Txn, records
from tests.kits.servers.stores import StorePlace

TOPIC = "shop/orders"

_T = TypeVar("_T")


class OneAgent:
    """See ``AgentClient``: an agent under test."""

    answered = "the agent"

    def __init__(self, agent: Agent) -> None:
        self._talk = Talk(agent)
        self.stream = Agents([agent.url]).stream

    def close(self) -> None:
        self._talk.close()

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body)
        answer = self._talk.send(method, path, sent, headers or JSON)
        if answer.status >= 300:
            raise AgentRefusedError(str(answer.json.get("detail")), answer.status)
        return answer


def once(call: Callable[[], _T]) -> _T:
    return call()


class Place(NamedTuple):
    """Where a reader reads: ``backend`` or ``agents``."""

    backend: Backend | None
    agents: OneAgent | None

    def origin(self, **options: Any) -> TopicOrigin:
        made = topic_options(**options)
        if self.agents is not None:
            return TopicOrigin(AgentTopic(self.agents, made, once), made)
        assert self.backend is not None
        return TopicOrigin(StoreTopic(self.backend, made), made)

    def batch(self, **options: Any) -> BatchReader:
        made = topic_options(**options)
        columns = TopicColumns(topic_schema(made.is_binary), made)
        unused = read_options({"agent": "http://unused"})
        return BatchReader(unused, self.origin(**options), columns.batch)


def topic_options(**options: Any) -> TopicOptions:
    return TopicOptions(name=parse_topic(TOPIC), **options)


@contextmanager
def places(place: StorePlace, agent: Agent) -> Iterator[dict[str, Place]]:
    client = OneAgent(agent)
    try:
        yield {
            "store": Place(make_backend(str(place.store)), None),
            "agent": Place(None, client),
        }
    finally:
        client.close()


def rows_of(reader: BatchReader) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def payloads_of(reader: BatchReader) -> list[str | None]:
    return [row["payload"] for row in rows_of(reader)]


def between(origin: TopicOrigin, start: Offset, end: Offset) -> list[str | None]:
    """Return the payloads of a batch of a stream."""
    parts = origin.plan(start, end)
    messages = [each for part in parts for rows in origin.rows(part) for each in rows]
    return [each.content.payload for each in messages if each.content is not None]


def commit(agent: Agent, topic: Topic, *payloads: str) -> str:
    """Write the records of a transaction and commit it. Return its id."""
    txn = Txn.begin(agent)
    txn.write(*records(topic, *payloads))
    txn.commit(len(payloads))
    return txn.id


def publish_under(topic: Topic, pointer: int, *payloads: str) -> None:
    body = {"transactionWritePointer": pointer, "messages": payloads}
    ok(topic.agent.request("POST", f"{topic.path}/publish", body))


def report(topic: Topic, pointer: int, decision: str) -> None:
    ok(topic.agent.request("POST", f"/v1/pointers/{pointer}/{decision}", {"topics": [topic.name]}))


def polled(topic: Topic, isolation: Isolation = Isolation.READ_COMMITTED) -> list[dict[str, Any]]:
    """Return the messages that a poll has, one page after another."""
    messages: list[dict[str, Any]] = []
    while True:
        start = messages[-1]["id"] if messages else None
        page = ok(topic.try_poll(start, inclusive=False, isolation=isolation.value)).json
        if not page:
            return messages
        messages += page
