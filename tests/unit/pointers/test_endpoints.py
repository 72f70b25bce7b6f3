"""The endpoints of pointers: unreachable store, missing right, an agent that stops."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI

from oplogd.errors import NotConfirmedError, StoreUnavailableError
from oplogd.ingest.appends import Appends
from oplogd.ingest.budget import Budgets
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.ignored import IgnoredMembers
from oplogd.model.names import TopicName
from oplogd.store.transactions import RecordLimits
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.pointers.service import PointerService
from oplogd.topics.publish import MessageQueue, PublishService
from oplogd.topics.transactions.room import RecordRoom
from oplogd.watch.health import Health
from oplogd.web.access.right_bodies import right_of
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.error_handlers import Refusals, add_error_handlers
from oplogd.web.v1.messages import add_publish
from oplogd.web.v1.pointers import add_pointers
from oplogd.web.v1.requests import Api
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_pointers import MemoryPointers
from tests.kits.web.keepers import Granting

OWN, FOREIGN = TopicName("ns", "own"), TopicName("ns", "foreign")
RIGHT = right_of({each: ["ns/own"] for each in ("read", "write", "manage")})
PATH = "/v1/namespaces/ns/topics/own"
AWAY = "store x: away"
UNDER = {"transactionWritePointer": 5}
MESSAGES = {**UNDER, "messages": ["a"]}
REPORT = {"topics": [str(OWN)]}
TWICE = f"not confirmed; a repeated request may store the messages twice: {AWAY}"
AGAIN = f"not confirmed; a repeated request continues: {AWAY}"
WRITES: list[tuple[str, Any, str]] = [
    (f"{PATH}/publish", MESSAGES, TWICE),
    (f"{PATH}/publish", UNDER, AGAIN),
    (f"{PATH}/store", MESSAGES, TWICE),
    (f"{PATH}/rollback", UNDER, AGAIN),
    ("/v1/pointers/5/commit", REPORT, AGAIN),
    ("/v1/pointers/5/abort", REPORT, AGAIN),
]


def lacking(right: str) -> tuple[int, str]:
    return 403, f"the right to {right} ns/foreign is missing"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class Bench:
    """The endpoints over a store in memory that holds OWN and FOREIGN."""

    def __init__(self) -> None:
        self.topics = MemoryTopics(lambda: 1_700_000_000_000)
        self.pointers = MemoryPointers(self.topics)
        self.stopping = False
        known, counters = KnownTopics(self.topics), TopicCounters()
        service = PointerService(
            self.pointers,
            self.topics,
            known,
            counters,
            RecordLimits(),
            900,
            RecordRoom(100, 10_000),
        )
        publisher = PublishService(known, MessageQueue(100, 10_000, "messages"), counters)
        bodies = BodyReader(Budgets.of(4 << 20, 30.0), 4 << 20)
        self.app = FastAPI()
        add_error_handlers(self.app, Refusals())

        def stopping() -> bool:
            return self.stopping

        api = Api(*Granting.both(RIGHT), bodies, Appends(Health()), stopping)
        add_publish(
            self.app, api, publisher, service, _no_intake(), IgnoredMembers(IngestCounters())
        )
        add_pointers(self.app, api, service, publisher)

    async def post(self, path: str, body: Any) -> Answer:
        return await self.request("POST", path, json.dumps(body).encode())

    async def request(self, method: str, path: str, body: bytes = b"") -> Answer:
        sent: list[Any] = []
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        raw = sent[1]["body"]
        return Answer(sent[0]["status"], headers, json.loads(raw) if raw else None)

    async def kinds(self) -> list[str]:
        return [each["kind"] for each in (await self.request("GET", f"{PATH}/entries")).body]


def _no_intake() -> Any:
    return None


def run(work: Callable[[Bench], Awaitable[None]]) -> None:
    async def with_topics() -> None:
        bench = Bench()
        for name in (OWN, FOREIGN):
            await bench.topics.create(name, None)
        await work(bench)

    asyncio.run(with_topics())


@pytest.mark.parametrize("kind", [StoreUnavailableError, NotConfirmedError])
def test_a_store_that_is_away_is_told_with_the_effect_of_a_repeated_request(
    kind: type[StoreUnavailableError],
) -> None:
    async def work(bench: Bench) -> None:
        bench.pointers.trouble = kind(AWAY)
        for path, body, sentence in WRITES:
            answer = await bench.post(path, body)
            assert (answer.status, answer.body["detail"]) == (503, sentence), path
            assert answer.headers["retry-after"] == "5"
        bench.pointers.trouble = StoreUnavailableError(AWAY)
        answer = await bench.request("GET", f"{PATH}/pointers")
        assert (answer.status, answer.body["detail"]) == (503, AWAY)
        bench.pointers.trouble = None
        assert await bench.kinds() == []

    run(work)


def test_an_agent_that_stops_takes_nothing_under_a_pointer() -> None:
    async def work(bench: Bench) -> None:
        bench.stopping = True
        for path, body, _ in WRITES:
            answer = await bench.post(path, body)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1"), path
            assert "stopping" in answer.body["detail"]
        assert (await bench.request("GET", f"{PATH}/pointers")).body == []
        assert await bench.kinds() == []

    run(work)


def test_other_messages_that_wait_for_the_store_leave_no_room() -> None:
    async def work(bench: Bench) -> None:
        bench.pointers.gate.clear()
        messages = {**UNDER, "messages": ["x" * 9_000]}
        first = asyncio.create_task(bench.post(f"{PATH}/publish", messages))
        await bench.pointers.arrived.wait()
        for action in ("publish", "store"):
            answer = await bench.post(f"{PATH}/{action}", messages)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "wait for the store; try again later" in answer.body["detail"]
        bench.pointers.gate.set()
        assert (await first).status == 200
        assert await bench.kinds() == ["direct"]

    run(work)


def test_a_report_needs_the_right_to_write_each_topic() -> None:
    async def work(bench: Bench) -> None:
        topics = [str(OWN), str(FOREIGN)]
        for end in ("commit", "abort"):
            answer = await bench.post(f"/v1/pointers/5/{end}", {"topics": topics})
            assert (answer.status, answer.body["detail"]) == lacking("write")
        assert await bench.kinds() == [], "nothing was decided"
        assert (await bench.post("/v1/pointers/5/commit", REPORT)).status == 200
        assert await bench.kinds() == ["commit"]

    run(work)


def test_each_request_needs_the_right_for_its_topic() -> None:
    async def work(bench: Bench) -> None:
        path = PATH.replace(OWN.topic, FOREIGN.topic)
        for action in ("publish", "store", "rollback"):
            answer = await bench.post(f"{path}/{action}", MESSAGES)
            assert (answer.status, answer.body["detail"]) == lacking("write")
        for action, right in (("pointers", "manage"), ("entries", "read")):
            answer = await bench.request("GET", f"{path}/{action}")
            assert (answer.status, answer.body["detail"]) == lacking(right)

    run(work)
