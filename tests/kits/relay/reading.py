"""Reads all that arrived in topics and in the oplog, as the checker wants it."""

from datetime import datetime
from typing import Any

from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic, ok
from tests.kits.relay.checker import Arrival
from tests.kits.relay.outbox import OPLOG, ZERO


def read_topic(agent: Agent, log: str) -> list[Arrival]:
    """Return all messages of a topic, oldest first. Fails on one that is not from a row."""
    topic = Topic(agent, log)
    arrivals: list[Arrival] = []
    start = None
    while page := ok(topic.try_poll(start, inclusive=False)).json:
        arrivals += [_arrival(log, message) for message in page]
        start = page[-1]["id"]
    return arrivals


def _arrival(log: str, message: dict[str, Any]) -> Arrival:
    headers = message["headers"]
    assert [name for name, _ in headers] == ["number", "outbox-id"], message
    number = int(headers[0][1])
    key = message["key"]
    assert message["payload"] in (None, f"{key} {number}"), message
    return Arrival(log, key, number, int(message["id"][:16], 16))


class OplogPosition:
    """A place in the oplog. ``arrivals``: the operations of one type behind it, by a stream."""

    def __init__(self, agent: Agent) -> None:
        with agent.follow() as stream:
            assert agent.post({"event": "update", "type": "begin", "id": "0"}) == 204
            self._id = stream.until("update")[-1].id
        self._reads = 0

    def arrivals(self, agent: Agent, type_: str) -> list[Arrival]:
        self._reads += 1
        end = f"end/{id(self)}-{self._reads}"
        assert agent.post({"event": "update", "type": "end", "id": end.removeprefix("end/")}) == 204
        arrivals: list[Arrival] = []
        with agent.follow(self._id) as stream:
            while (event := stream.take(1)[0]).event == "live" or event.key != end:
                assert event.event in ("update", "delete", "live"), event
                if event.event != "live" and event.operation["type"] == type_:
                    when = datetime.fromisoformat(event.operation["timestamp"])
                    number = int((when - ZERO).total_seconds())
                    arrivals.append(Arrival(OPLOG, event.key, number, _ms(event.id)))
        return arrivals


def _ms(event_id: str) -> int:
    return int(event_id[:8], 16) * 1000 + int(event_id[8:12], 16)
