"""Topics of an agent under test, over HTTP."""

import http.client
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from itertools import cycle
from typing import Any, NamedTuple, Self

from tests.kits.agents.agent import DEADLINE, Agent, Answer, Event
from tests.kits.agents.streams import ByteStream
from tests.kits.clock.waiting import attempts
from tests.kits.mongo.agents import wait_for

JSON = {"Content-Type": "application/json"}
RESET = Event("0", "reset", "")


class Polled(NamedTuple):
    """A message with a payload only. ``id``: 40 digits."""

    id: str
    payload: str

    @property
    def ms(self) -> int:
        return int(self.id[:16], 16)

    @property
    def sequence(self) -> int:
        return int(self.id[16:20], 16)


class Topic:
    """A topic at one agent. Methods that return no Answer fail unless it is 200."""

    def __init__(self, agent: Agent, name: str = "tests/events") -> None:
        namespace, _, topic = name.partition("/")
        self.agent = agent
        self.name = name
        self.path = f"/v1/namespaces/{namespace}/topics/{topic}"

    def create(self, **properties: object) -> Self:
        """Create the topic. A store that confirms nothing for some seconds is waited for."""
        for _ in attempts(DEADLINE):
            answer = self.agent.request("PUT", self.path, properties)
            if answer.status != 503:
                break
        ok(answer)
        return self

    def change(self, **properties: object) -> None:
        ok(self.agent.request("PUT", f"{self.path}/properties", properties))

    def delete(self) -> None:
        ok(self.agent.request("DELETE", self.path))

    def properties(self) -> Any:
        return ok(self.agent.request("GET", self.path)).json["properties"]

    def publish(self, *messages: object) -> None:
        ok(self.try_publish(messages))

    def try_publish(self, messages: Sequence[object]) -> Answer:
        return self.agent.request("POST", f"{self.path}/publish", {"messages": messages})

    def try_poll(self, start: str | int | None = None, **members: object) -> Answer:
        """Poll all messages, also of open transactions, unless ``members`` say otherwise."""
        if "isolation" not in members and members.get("transaction") is None:
            members["isolation"] = "read_uncommitted"
        return self.agent.request("POST", f"{self.path}/poll", {"startFrom": start, **members})

    def poll(self, start: str | int | None = None, **members: object) -> list[Polled]:
        return [Polled(**message) for message in ok(self.try_poll(start, **members)).json]

    def poll_all(self) -> list[Polled]:
        """Return all messages, one page after another."""
        messages = page = self.poll()
        while page:
            page = self.poll(messages[-1].id, inclusive=False)
            messages = messages + page
        return messages

    def payloads(self) -> list[str]:
        return [message.payload for message in self.poll_all()]

    def wait_for_payloads(self, *expected: str) -> list[Polled]:
        """Poll until these are the messages: an agent learns of another's a moment later."""
        return wait_for_messages(self, expected, self.poll_all)

    def has_gap(self, start: str | int) -> bool:
        """Return whether an exclusive poll says that messages after ``start`` are gone."""
        answer = ok(self.try_poll(start, inclusive=False))
        return answer.headers.get("oplog-gap") == "1"

    def stream(self, last_event_id: str | None = None, **query: str) -> ByteStream:
        """Follow all messages, also of open transactions, unless ``query`` says otherwise."""
        query.setdefault("isolation", "read_uncommitted")
        return ByteStream(self.agent, last_event_id, query, path=f"{self.path}/stream")

    def try_stream(self, last_event_id: str) -> Answer:
        """Ask for a stream that is refused."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last_event_id}
        return self.agent.request("GET", f"{self.path}/stream", headers=headers)


class Line:
    """A connection that stays open. Raises OSError or HTTPException if the agent is gone."""

    def __init__(self, topic: Topic) -> None:
        self._path = topic.path
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", topic.agent.port, timeout=DEADLINE
        )

    def publish(self, messages: Sequence[object]) -> Answer:
        return self._post("publish", {"messages": messages})

    def poll_after(self, id_: str | None) -> Answer:
        return self._post("poll", {"startFrom": id_, "inclusive": False})

    def _post(self, action: str, body: object) -> Answer:
        self._connection.request("POST", f"{self._path}/{action}", json.dumps(body), JSON)
        with self._connection.getresponse() as response:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read())

    def close(self) -> None:
        self._connection.close()


def wait_for_messages(
    topic: Topic, payloads: Sequence[str], poll_all: Callable[[], list[Polled]]
) -> list[Polled]:
    """Poll until these are the payloads. Return their messages."""
    found: list[Polled] = []

    def are_there() -> bool:
        nonlocal found
        found = poll_all()
        return [each.payload for each in found] == list(payloads)

    wait_for(f"{payloads} in {topic.name}", are_there)
    return found


def tail(count: int, *topics: Topic) -> list[Polled]:
    """Return the first ``count`` messages, polled while they are published.

    Asks one agent after another, each time for the messages after the last id.
    """
    messages: list[Polled] = []
    deadline = time.monotonic() + 2 * DEADLINE
    with ExitStack() as stack:
        lines = cycle([stack.enter_context(closing(Line(topic))) for topic in topics])
        while len(messages) < count:
            assert time.monotonic() < deadline, f"{len(messages)} of {count} messages"
            answer = ok(next(lines).poll_after(messages[-1].id if messages else None))
            assert "oplog-gap" not in answer.headers
            messages += [Polled(**message) for message in answer.json]
    return messages


def ok(answer: Answer) -> Answer:
    assert answer.status == 200, answer
    return answer


def received(events: Sequence[Event]) -> list[Polled]:
    """Return the messages of a stream; fail on any other block."""
    assert all(event.event == "message" for event in events), events
    return [Polled(event.id, json.loads(event.data)["payload"]) for event in events]


def numbered(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]
