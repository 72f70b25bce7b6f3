"""Random rights at every endpoint that reads: all that is granted, and no byte of anything else."""

import json
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jwt
import pytest

from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store
from tests.kits.contract.wire import JSON, SSE, RawStream, Target
from tests.kits.sse.heads import pairs_of
from tests.kits.sse.stream import Event

store_kind = kinds_of_store(EACH_DRIVER)

SECRET = "a secret of more than 32 bytes, for tests"
TYPES = ["video", "user", "list"]
PARENTS = ["user/ada", "user/bob", "shelf,1", "ä"]
TOPICS = [f"{namespace}/{topic}" for namespace in ("shop", "mail") for topic in ("one", "two")]
PATTERNS = [*TOPICS, "shop/*", "mail/*", "*"]
ALL = {"read": ["*"], "write": ["*"], "manage": ["*"]}


class Stored(NamedTuple):
    """An operation in the log. ``mark``: text that only its object has."""

    id: str
    event: str
    type: str
    mark: str
    parents: tuple[str, ...]


def bearer(right: Any) -> dict[str, str]:
    token = jwt.encode({"exp": time.time() + 3_600, "oplog": right}, SECRET, "HS256")
    return {"Authorization": f"Bearer {token}"}


class House:
    """An agent with random operations and messages. ``log``: all operations in their order."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target = target
        self.random = random.Random(seed)
        self.messages: dict[str, list[str]] = {}
        for topic in TOPICS:
            namespace, name = topic.split("/")
            path = f"/v1/namespaces/{namespace}/topics/{name}"
            self.ask("PUT", path, ALL, {})
            self.messages[topic] = [f"message-{self.random.randrange(10**9)}-" for _ in range(3)]
            payloads = {"messages": [{"payload": each} for each in self.messages[topic]]}
            self.ask("POST", f"{path}/publish", ALL, payloads)
        marks = [f"mark-{n}-" for n in range(25)]
        for _ in range(60):
            self.store(self.random.choice(marks))
        self.log = list(self.whole())

    def store(self, mark: str, type_: str | None = None, parents: list[str] | None = None) -> None:
        chance = self.random
        parents = chance.sample(PARENTS, chance.randrange(3)) if parents is None else parents
        operation = {
            "event": chance.choice(["insert", "update", "delete"]),
            # An object keeps its type.
            "type": type_ or TYPES[int(mark.split("-")[1]) % len(TYPES)],
            "id": mark,
            "parents": parents,
        }
        self.ask("POST", "/ops", ALL, operation)

    def whole(self) -> Iterator[Stored]:
        """Yield the log as a poll of all of it shows it."""
        for each in self.ask("POST", "/v1/namespaces/system/topics/oplog/poll", ALL, {}):
            data = json.loads(each["payload"])
            yield Stored(
                each["id"], data["event"], data["type"], data["id"], tuple(data["parents"])
            )

    def ask(self, method: str, path: str, right: Any, body: Any = None) -> Any:
        """Return what a client with this right gets, or the status of its refusal."""
        reply = self.answer(method, path, right, body)
        if reply.status >= 300:
            return reply.status
        if reply.header("Content-Type") == "application/x-ndjson":
            return [json.loads(line) for line in reply.body.splitlines()]
        return reply.json if reply.body else None

    def answer(self, method: str, path: str, right: Any, body: Any = None) -> Any:
        raw = None if body is None else json.dumps(body).encode()
        headers = {**(JSON if raw else {}), **bearer(right)}
        return self.target.request(method, path, raw, headers)


@pytest.fixture(scope="module")
def house(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("agent")
    key = folder / "key"
    key.write_text(SECRET)
    with store_kind.agent(folder, "--token-key", str(key)) as agent:
        yield House(Target.of(agent), seed=5)


def rights(seed: int) -> dict[str, Any]:
    """Return a random right to read."""
    chance = random.Random(seed)
    right: dict[str, Any] = {"read": chance.sample(PATTERNS, chance.randrange(3))}
    if chance.random() < 0.8:
        right["read"].append("system/oplog")
    if chance.random() < 0.6:
        right["types"] = chance.sample(TYPES, chance.randrange(1, 3))
    if chance.random() < 0.6:
        right["parents"] = chance.sample(PARENTS, chance.randrange(1, 3))
    return right


def grants(right: dict[str, Any], topic: str) -> bool:
    namespace = topic.partition("/")[0]
    return bool({topic, f"{namespace}/*", "*"} & set(right["read"]))


def passes(right: dict[str, Any], operation: Stored) -> bool:
    return operation.type in right.get("types", TYPES) and (
        "parents" not in right or bool(set(right["parents"]) & set(operation.parents))
    )


def hidden(house: House, right: dict[str, Any]) -> list[str]:
    """Return texts that this right must never show."""
    seen = {each.mark for each in house.log if passes(right, each)}
    marks = {each.mark for each in house.log} - (seen if grants(right, "system/oplog") else set())
    payloads = [
        text
        for topic, texts in house.messages.items()
        if not grants(right, topic)
        for text in texts
    ]
    return [*marks, *payloads]


def read(house: House, right: dict[str, Any], path: str, until: str) -> tuple[list[Event], bytes]:
    """Return the events of a stream up to the one with a text, and all bytes received."""
    with RawStream(house.target, path, pairs_of({**SSE, **bearer(right)})) as stream:
        events: list[Event] = []
        while not events or until not in f"{events[-1].event} {events[-1].data}":
            events.append(Event.parse(stream.block()))
        return events, bytes(stream.received)


@pytest.mark.parametrize("seed", range(12))
def test_a_right_shows_all_that_it_grants_and_nothing_else(house: House, seed: int) -> None:
    right = rights(seed)
    secrets = hidden(house, right)

    def shows_nothing_else(raw: bytes) -> None:
        text = raw.decode()
        assert [each for each in secrets if each in text] == []

    for method, path, body in (
        ("GET", "/status", None),
        ("GET", "/metrics", None),
        ("GET", "/v1/txns", None),
        ("GET", "/v1/pointers", None),
        ("GET", "/v1/leases", None),
        ("GET", "/v1/namespaces", None),
        ("POST", "/v1/namespaces/system/topics/oplog/poll", {}),
        ("GET", "/objects?limit=3", None),
    ):
        reply = house.answer(method, path, right, body)
        shows_nothing_else(reply.body)
        shows_nothing_else(repr(reply.headers).encode())
    topics_are_shown_by_name(house, right)
    if not grants(right, "system/oplog"):
        for path in ("/objects", "/objects/video/mark-0-"):
            assert house.ask("GET", path, right) == 403
        head = house.target.request("HEAD", "/ops", None, {**SSE, **bearer(right)})
        assert head.status == 403
        return
    operations_are_shown(house, right, shows_nothing_else)


def topics_are_shown_by_name(house: House, right: dict[str, Any]) -> None:
    for topic, payloads in house.messages.items():
        namespace, name = topic.split("/")
        path = f"/v1/namespaces/{namespace}/topics/{name}"
        listed = [each["name"] for each in house.ask("GET", path.rpartition("/")[0], right)]
        assert (name in listed) == grants(right, topic)
        if not grants(right, topic):
            for method, action in (("GET", ""), ("POST", "/poll"), ("GET", "/entries")):
                assert (
                    house.ask(method, path + action, right, {} if action == "/poll" else None)
                    == 403
                )
            continue
        for isolation in ("read_uncommitted", "read_committed"):
            polled = house.ask("POST", f"{path}/poll?isolation={isolation}", right, {})
            assert [each["payload"] for each in polled] == payloads
            stream = f"{path}/stream?last_event_id=0&isolation={isolation}"
            events, _ = read(house, right, stream, payloads[-1])
            assert [json.loads(each.data)["payload"] for each in events] == payloads


def operations_are_shown(house: House, right: dict[str, Any], shows_nothing_else: Any) -> None:
    chance = random.Random(str(right))
    end = f"end-{chance.randrange(10**9)}"
    type_ = right.get("types", TYPES)[0]
    house.store(f"end-0-{end}", type_, right.get("parents", []))
    house.log = list(house.whole())
    passing = [each for each in house.log if passes(right, each)]
    expected = [(each.event, each.mark) for each in passing]
    polled = house.ask("POST", "/v1/namespaces/system/topics/oplog/poll", right, {})
    payloads = [json.loads(each["payload"]) for each in polled]
    assert [(each["event"], each["id"]) for each in payloads] == expected
    place = chance.randrange(len(house.log) - 1)
    after = {each.id for each in house.log[place + 1 :]}
    for query in ("", "&checkpoint=1"):
        path = f"/ops?last_event_id={house.log[place].id}{query}"
        events, raw = read(house, right, path, end)
        found = [(each.event, json.loads(each.data)["id"]) for each in events if each.data]
        assert found == [(each.event, each.mark) for each in passing if each.id in after]
        shows_nothing_else(raw)
    states = {f"{each.type}/{each.mark}": each for each in house.log}
    live = {key for key, each in states.items() if each.event != "delete" and passes(right, each)}
    for path in ("/ops?last_event_id=0", "/v1/namespaces/system/topics/oplog/stream?since=0"):
        events, raw = read(house, right, path, "live ")
        keys = [each.key for each in events if each.event == "insert"]
        assert sorted(keys) == sorted(live)
        shows_nothing_else(raw)
    after_key, shown = "", []
    while True:
        reply = house.answer("GET", f"/objects?limit=4&after={after_key}", right)
        shows_nothing_else(reply.body)
        shown += [json.loads(line) for line in reply.body.splitlines()]
        after_key = reply.header("Oplog-Next") or ""
        if not after_key:
            break
    assert [f"{each['type']}/{each['id']}" for each in shown] == sorted(live)
    for key, each in states.items():
        reply = house.answer("GET", f"/objects/{key}", right)
        assert reply.status == (200 if passes(right, each) else 404), key
