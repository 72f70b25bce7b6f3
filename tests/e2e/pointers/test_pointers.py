"""Messages under pointers over three agents on one store: snapshots, rollbacks, lost answers."""

import http.client
import io
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import fastavro
import pytest

from tests.e2e.pointers.pointers import (
    ALL_VISIBLE,
    HELD_BY,
    MAX_POINTER,
    TEPHRA,
    Pointer,
    agents_on,
    entries,
    number_in,
    read,
    read_committed,
    read_snapshot,
    wait_for_held,
    wait_for_read,
    wait_until_streams_are_held,
)
from tests.kits.agents.agent import Agent, Answer, ask
from tests.kits.agents.topics import Topic, numbered, ok, received
from tests.kits.agents.transactions import COMMITTED
from tests.kits.processes.logged import DEADLINE
from tests.kits.proxies.http import Fault, HttpProxy
from tests.kits.servers.mongo import RunningMongo, new_database
from tests.kits.servers.stores import SORTS, StorePlace
from tests.kits.topics.avro_client import PointerClient

Agents = tuple[Agent, Agent, Agent]
TWENTY = numbered(20)


class Through(NamedTuple):
    """An agent behind a proxy."""

    proxy: HttpProxy

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return ask(self.proxy.port, method, path, body, headers)


@pytest.fixture(scope="module", params=["sqlite", "mongo-plain"])
def agents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("agents")
    server, kind = SORTS[request.param]
    place = StorePlace(folder / "oplog.db")
    if server is not None:
        running: RunningMongo = request.getfixturevalue(server)
        place = StorePlace(new_database(running.url), kind)
    with agents_on(place, folder, 3) as (one, two, three):
        yield one, two, three


def test_a_snapshot_decides_at_every_agent_what_a_poll_returns(agents: Agents) -> None:
    one, *_ = agents
    topic = Topic(one, "snapshot/t").create()
    Pointer(one, topic, 2).publish("m3")
    topic.publish("m4")
    for agent in agents:
        at = Topic(agent, topic.name)
        at.wait_for_payloads("m3", "m4")
        for snapshot, expected, held_by in (
            ({"inProgress": [2]}, [], "2"),
            ({"inProgress": ["2"], "invalid": [3]}, [], "2"),
            ({"invalid": [2]}, ["m4"], None),
            ({}, ["m3", "m4"], None),
            ({"inProgress": [2], "writePointer": 2}, ["m3", "m4"], None),
        ):
            page = read_snapshot(at, 5, **snapshot)
            assert (page.payloads, page.held_by) == (expected, held_by), snapshot
        assert read_snapshot(at, 1).held_by == "2"
        first = ok(at.try_poll(limit=1, transaction={"readPointer": 5}))
        assert ([each["payload"] for each in first.json], HELD_BY in first.headers) == (
            ["m3"],
            False,
        )


def test_twenty_stored_messages_are_read_in_order_after_their_publish(agents: Agents) -> None:
    one, two, three = agents
    topic = Topic(one, "stored/t").create()
    pointer = Pointer(one, topic)
    with Topic(three, topic.name).stream("0") as live:
        for number, agent in enumerate((one, two, three, one)):
            pointer.at(agent).store(*TWENTY[5 * number : 5 * number + 5])
        for agent in agents:
            at = Topic(agent, topic.name)
            assert read(at).payloads == read_snapshot(at, MAX_POINTER).payloads == []
            assert read_committed(at) == ([], None)
        answer = pointer.at(two).publish()
        assert len(answer["messages"]) == 1
        assert [each.payload for each in received(live.take(20))] == TWENTY
    for agent in agents:
        at = Topic(agent, topic.name)
        at.wait_for_payloads(*TWENTY)
        wait_for_held(at, TEPHRA)
        for transaction in (None, ALL_VISIBLE):
            six = at.poll(limit=6, transaction=transaction)
            assert [each.payload for each in six] == TWENTY[:6]
            rest = at.poll(six[-1].id, inclusive=False, transaction=transaction)
            assert [each.payload for each in rest] == TWENTY[6:]
        for cut in (0, 5, 19):
            with at.stream(read(at).messages[cut].id) as stream:
                got = received(stream.take(19 - cut))
                assert got == read(at).messages[cut + 1 :]
    pointer.at(three).commit()
    for agent in agents:
        at = Topic(agent, topic.name)
        wait_for_read(at, *TWENTY)
        six = at.poll(limit=6, isolation=COMMITTED)
        rest = at.poll(six[-1].id, inclusive=False, isolation=COMMITTED)
        assert six + rest == read(at).messages


def test_what_is_rolled_back_is_gone_for_every_reader_of_every_agent(agents: Agents) -> None:
    """Also from the rings of all agents, which serve second polls and streams."""
    one, two, three = agents
    topic = Topic(one, "rollback/t").create()
    topics = [Topic(agent, topic.name) for agent in agents]
    topic.publish("before")
    first, other = Pointer(one, topic, 1), Pointer(two, topic, 2)
    stored = Pointer(three, topic, 3)
    with ExitStack() as stack:
        raw = [stack.enter_context(at.stream("0")) for at in topics]
        held = [stack.enter_context(at.stream("0", isolation=COMMITTED)) for at in topics]
        answers = [first.publish("a", "b"), other.publish("kept"), first.at(three).publish("c")]
        stored.store("d", "e")
        answers.append(stored.publish())
        stored.store("f")
        topic.publish("after")
        everything = ["before", *"ab", "kept", *"cde", "after"]
        for at, stream, committed in zip(topics, raw, held, strict=True):
            assert [each.payload for each in received(stream.take(8))] == everything
            assert [each.payload for each in received(committed.take(1))] == ["before"]
            wait_until_streams_are_held(at.agent, at, 1, 1)
            for _ in range(2):
                assert at.wait_for_payloads(*everything)
            wait_for_held(at, 1, "before")
        first.at(two).rollback(answers[0])
        for at in topics:
            for _ in range(2):
                at.wait_for_payloads("before", "kept", *"cde", "after")
                assert read_snapshot(at, 5).payloads == ["before", "kept", *"cde", "after"]
            wait_until_streams_are_held(at.agent, at, 2, 1)
        first.at(three).rollback()
        stored.at(one).rollback(answers[3])
        other.at(three).commit()
        for at, committed in zip(topics, held, strict=True):
            wait_for_read(at, "before", "kept", "after")
            assert read_snapshot(at, 5, inProgress=[1, 3]).payloads == ["before", "kept", "after"]
            got = received(committed.take(2))
            assert [each.payload for each in got] == ["kept", "after"]
            for isolation in (COMMITTED, "read_uncommitted"):
                with at.stream("0", isolation=isolation) as late:
                    assert received(late.take(3)) == read(at).messages
        topic.publish("end")
        for stream in (*raw, *held):
            assert [each.payload for each in received(stream.take(1))] == ["end"]
        for agent in agents:  # the store "f" is kept: it was not published when "d" was rolled back
            shown = ok(agent.request("GET", f"{topic.path}/pointers")).json
            assert [each["pointer"] for each in shown] == ["1", "3"]
    stored.publish()
    topic.wait_for_payloads("before", "kept", "after", "end", "f")


def test_a_request_whose_answer_was_lost_is_repeated_at_another_agent(agents: Agents) -> None:
    one, two, three = agents
    topic = Topic(one, "lost/t").create()
    with HttpProxy(one.port) as proxy:
        through = Pointer(Through(proxy), topic)

        def lose(call: Callable[[], object]) -> None:
            proxy.disturb(Fault.LOSE_ANSWER, "/")
            with pytest.raises(http.client.RemoteDisconnected):
                call()

        through.store("a", "b")
        lose(through.publish)
        place = through.at(two).publish()
        assert place == through.publish() == through.at(three).publish()
        for agent in agents:
            at = Topic(agent, topic.name)
            at.wait_for_payloads("a", "b")
            key = read(at).messages[0]
            assert [(key.ms, key.sequence)] == [
                (each["publishTimestamp"], each["sequenceId"]) for each in place["messages"]
            ]
        assert [each["kind"] for each in entries(topic)] == ["publish"]
        # A publish of messages may be done twice: the owner rolls back, and both are gone.
        lose(lambda: through.publish("c"))
        again = through.at(three).publish("c")
        topic.wait_for_payloads(*"abcc")
        through.at(two).rollback(again)
        topic.wait_for_payloads(*"abc")
        lose(lambda: through.store("d"))
        through.at(two).store("d")
        lose(through.rollback)
        through.at(three).rollback()
        topic.wait_for_payloads()
        assert ok(one.request("GET", f"{topic.path}/pointers")).json[0]["published"] is True
        through.publish("e")
        lose(through.commit)
        through.at(two).commit()
        assert through.at(three).report("abort").status == 409
        for agent in agents:
            wait_for_read(Topic(agent, topic.name), "e")
        assert [each["kind"] for each in entries(topic)].count("commit") == 1


def test_a_store_that_arrives_after_the_publish_changes_no_readers_list(agents: Agents) -> None:
    one, two, three = agents
    topic = Topic(one, "late/t").create()
    pointer = Pointer(two, topic)
    pointer.store("a", "b")
    with HttpProxy(one.port) as proxy, ThreadPoolExecutor(1) as pool:
        held = proxy.disturb(Fault.HOLD, "/")
        late = pool.submit(pointer.at(Through(proxy)).ask, "store", messages=["late"])
        proxy.wait_reached(held)
        with Topic(three, topic.name).stream("0") as early:
            place = pointer.publish()
            assert [each.payload for each in received(early.take(2))] == ["a", "b"]
            lists = [Topic(agent, topic.name).wait_for_payloads("a", "b") for agent in agents]
            proxy.end(held)
            assert late.result(DEADLINE).status == 200
            topic.publish("plain")
            assert [each.payload for each in received(early.take(1))] == ["plain"]
        for agent, before in zip(agents, lists, strict=True):
            at = Topic(agent, topic.name)
            at.wait_for_payloads("a", "b", "plain")
            with at.stream("0") as stream:
                assert received(stream.take(3))[:2] == before
            assert read_snapshot(at, MAX_POINTER).messages[:2] == before
    later = pointer.publish()
    assert later != place
    assert pointer.publish() == later
    pointer.commit()
    for agent in agents:
        wait_for_read(Topic(agent, topic.name), "a", "b", "plain", "late")


@pytest.mark.parametrize("number", [0, TEPHRA, MAX_POINTER])
def test_pointers_of_every_size_are_exact_as_numbers_and_texts_in_json_and_avro(
    agents: Agents, number: int
) -> None:
    one, two, three = agents
    topic = Topic(one, f"size/t{number}").create()
    avro = PointerClient(two, topic.name, number)
    answers = [
        Pointer(one, topic, given).ask("publish", messages=[f"{type(given).__name__}"])
        for given in (number, str(number))
    ]
    for answer in answers:
        assert number_in(ok(answer), "transactionWritePointer") == str(number)
    info = avro.send("publish", b"avro")
    schema, decoded = avro.info_schema, io.BytesIO(ok(info).body)
    assert fastavro.schemaless_reader(decoded, schema, None)["transactionWritePointer"] == number  # type: ignore[index, call-overload]
    assert ok(avro.send("store", b"stored")).body == b""
    stored = avro.published()
    neighbours = [each for each in (number - 1, number + 1) if 0 <= each <= MAX_POINTER]
    for neighbour in neighbours:
        Pointer(three, topic, neighbour).publish("neighbour")
    payloads = ["int", "str", "avro", "stored"]
    for agent in agents:
        at = Topic(agent, topic.name)
        at.wait_for_payloads(*payloads, *["neighbour"] * len(neighbours))
        wait_for_held(at, number)
        for given in (number, str(number)):
            page = read_snapshot(at, MAX_POINTER, inProgress=[given])
            assert (page.payloads, page.held_by) == ([], str(number))
            page = read_snapshot(at, MAX_POINTER, invalid=[given])
            assert page.payloads == ["neighbour"] * len(neighbours)
            page = read(at, transaction={"readPointer": -1, "writePointer": given})
            assert page.payloads == payloads
            assert page.held_by == (str(neighbours[0]) if neighbours else None)
        for lists in ({"inProgress": [number]}, {"inProgress": [str(number)]}):
            asked = json.dumps({"readPointer": MAX_POINTER, **lists}).encode()
            held = PointerClient(agent, topic.name).try_poll(transaction=asked)
            assert (held.headers[HELD_BY], held.body) == (str(number), b"\0")
        shown = ok(agent.request("GET", f"{topic.path}/pointers")).json
        assert [each["pointer"] for each in shown] == [str(number), *map(str, neighbours)]
        assert {each["pointer"] for each in entries(at)} == {str(number), *map(str, neighbours)}
    Pointer(three, topic, number).rollback(answers[1].json)
    assert ok(avro.post("rollback", info.body)).body == b""
    assert ok(avro.post("rollback", avro.info(stored["messages"], number))).body == b""
    told = ok(Pointer(two, topic, str(number)).report("commit")).json
    assert told["pointer"] == str(number)
    for neighbour in neighbours:
        Pointer(one, topic, neighbour).commit()
    for agent in agents:
        at = Topic(agent, topic.name)
        wait_for_read(at, "int", *["neighbour"] * len(neighbours))
