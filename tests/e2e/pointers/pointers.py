"""Messages under pointers of foreign transactions, over HTTP, as agents and readers see them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.kits.agents.agent import Agent, Answer
from tests.kits.agents.topics import Polled, Topic, ok
from tests.kits.agents.transactions import COMMITTED
from tests.kits.contract.wire import SSE, RawStream, Target
from tests.kits.mongo.agents import wait_for
from tests.kits.servers.stores import StorePlace

UNCOMMITTED = "read_uncommitted"
HELD_BY = "oplog-held-by"

# As the transaction manager Tephra numbers its transactions: a time in ms, times a million.
TEPHRA = 1_800_000_000_000_000_001
MAX_POINTER = (1 << 62) - 1

# A reader with this snapshot sees every pointer.
ALL_VISIBLE: dict[str, object] = {"readPointer": MAX_POINTER}


class Requests(Protocol):
    """An agent, or a proxy before it."""

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer: ...


class Pointer:
    """A pointer in one topic. Methods that return no Answer fail unless it is 200."""

    def __init__(self, agent: Requests, topic: Topic, pointer: int | str = TEPHRA) -> None:
        self.agent = agent
        self.topic = topic
        self.pointer = pointer

    def at(self, agent: Requests) -> "Pointer":
        return Pointer(agent, self.topic, self.pointer)

    def ask(self, action: str, **members: object) -> Answer:
        """Send publish, store or rollback."""
        body = {"transactionWritePointer": self.pointer, **members}
        return self.agent.request("POST", f"{self.topic.path}/{action}", body)

    def publish(self, *messages: object) -> Any:
        """Publish these messages, or those that are stored. Return the answer."""
        return ok(self.ask("publish", **({"messages": messages} if messages else {}))).json

    def store(self, *messages: object) -> None:
        ok(self.ask("store", messages=messages))

    def rollback(self, answer: Any = None) -> None:
        """Roll back what an answer to a publish names; None: everything."""
        path = f"{self.topic.path}/rollback"
        body = {"transactionWritePointer": self.pointer} if answer is None else answer
        assert ok(self.agent.request("POST", path, body)).body == b""

    def report(self, end: str, *others: Topic) -> Answer:
        return report(self.agent, self.pointer, end, self.topic, *others)

    def commit(self) -> None:
        assert ok(self.report("commit")).json["state"] == "committed"

    def abort(self) -> None:
        assert ok(self.report("abort")).json["state"] == "aborted"


class Page(NamedTuple):
    """Messages of all polls up to the end or a hold. ``held_by``: the pointer of the hold."""

    messages: list[Polled]
    held_by: str | None

    @property
    def payloads(self) -> list[str]:
        return [each.payload for each in self.messages]


def report(agent: Requests, pointer: int | str, end: str, *topics: Topic) -> Answer:
    body = {"topics": [topic.name for topic in topics]}
    return agent.request("POST", f"/v1/pointers/{pointer}/{end}", body)


def read(topic: Topic, limit: int = 1000, **members: Any) -> Page:
    """Poll until nothing more comes."""
    messages: list[Polled] = []
    start: dict[str, Any] = {}
    while True:
        answer = ok(topic.try_poll(limit=limit, **start, **members))
        assert "oplog-gap" not in answer.headers
        page = [Polled(**each) for each in answer.json]
        messages += page
        if not page:
            return Page(messages, answer.headers.get(HELD_BY))
        start = {"start": page[-1].id, "inclusive": False}


def read_committed(topic: Topic, limit: int = 1000) -> Page:
    return read(topic, limit, isolation=COMMITTED)


def read_snapshot(topic: Topic, read_pointer: int, limit: int = 1000, **lists: object) -> Page:
    return read(topic, limit, transaction={"readPointer": read_pointer, **lists})


def wait_for_held(topic: Topic, pointer: int | None, *payloads: str) -> None:
    """Poll until a committed reader gets these and is held then. None: and is not held."""
    wanted = ([*payloads], None if pointer is None else str(pointer))

    def is_held() -> bool:
        page = read_committed(topic)
        return (page.payloads, page.held_by) == wanted

    wait_for(f"{wanted} in {topic.name}", is_held)


def wait_for_read(topic: Topic, *payloads: str) -> None:
    """Poll until readers of both isolations get these."""

    def is_read() -> bool:
        return read_committed(topic) == read(topic) and read(topic).payloads == [*payloads]

    wait_for(f"{payloads} in {topic.name}", is_read)


def wait_until_streams_are_held(agent: Agent, topic: Topic, pointer: int, count: int) -> None:
    """Wait until so many streams of a topic are held by a pointer."""

    def are_held() -> bool:
        shown = [each for each in agent.status()["consumers"] if each["topic"] == topic.name]
        held = [each for each in shown if each["held_by"] == str(pointer)]
        return len(held) == count

    wait_for(f"{count} held streams of {topic.name}", are_held)


def raw_stream(topic: Topic, query: str, last_event_id: str | None = None) -> RawStream:
    """Return a stream with its heartbeats."""
    headers = SSE if last_event_id is None else {**SSE, "Last-Event-ID": last_event_id}
    return RawStream(Target.of(topic.agent), f"{topic.path}/stream?{query}", headers)


def entries(topic: Topic) -> list[dict[str, Any]]:
    path = f"{topic.path}/entries?after=0&limit=1000"
    found: list[dict[str, Any]] = ok(topic.agent.request("GET", path)).json
    return found


@contextmanager
def agents_on(place: StorePlace, folder: Path, count: int, *flags: str) -> Iterator[list[Agent]]:
    with ExitStack() as stack:
        yield [stack.enter_context(place.agent(folder, *flags)) for _ in range(count)]


def number_in(answer: Answer, member: str) -> str:
    """Return the digits of a number of an answer, as they were sent."""

    class Digits(str):
        __slots__ = ()

    found = json.loads(answer.body, parse_int=Digits)[member]
    assert isinstance(found, Digits), f"{member} is no number"
    return str(found)
