"""Transactions over three agents on one store: readers, retries, and the place to resume."""

import io
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import fastavro
import pytest

from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic, ok, received
from tests.kits.agents.transactions import (
    COMMITTED,
    Txn,
    committed,
    poll_committed,
    record,
    records,
    wait_for_committed,
)
from tests.kits.servers.mongo import RunningMongo, new_database
from tests.kits.servers.stores import SORTS, StorePlace
from tests.kits.topics.avro_client import AVRO, Client, written

Agents = tuple[Agent, Agent, Agent]


@pytest.fixture(scope="module", params=["sqlite", "mongo-plain", "mongo-capped"])
def agents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("agents")
    server, kind = SORTS[request.param]
    place = StorePlace(folder / "oplog.db")
    if server is not None:
        running: RunningMongo = request.getfixturevalue(server)
        place = StorePlace(new_database(running.url), kind)
    with ExitStack() as stack:
        one, two, three = [stack.enter_context(place.agent(folder)) for _ in range(3)]
        yield one, two, three


def test_committed_readers_get_transactions_in_the_order_of_their_commits(agents: Agents) -> None:
    """All kinds of readers at all agents; uncommitted ones get each record when it is written."""
    one, two, three = agents
    names = ("order/x", "order/y")
    x, y = [Topic(one, name).create() for name in names]
    with ExitStack() as stack:
        live, raw = [
            [
                stack.enter_context(Topic(agent, name).stream(isolation=isolation))
                for agent in (two, three)
                for name in names
            ]
            for isolation in (COMMITTED, "read_uncommitted")
        ]
        t1, t2 = Txn.begin(one), Txn.begin(two)
        t1.write(record(x, 0, "a"), record(y, 1, "a"))
        t2.write(record(y, 0, "b"), record(x, 1, "b"))
        for stream in raw:
            assert [each.payload for each in received(stream.take(2))] == ["a", "b"]
        for topic in (x, y):
            topic.wait_for_payloads("a", "b")
            assert committed(topic) == []
        second = t2.at(three).commit(2)["records"]
        first = t1.commit(2)["records"]
        ids = {x.name: [second[1], first[0]], y.name: [second[0], first[1]]}
        for stream, name in zip(live, names * 2, strict=True):
            got = received(stream.take(2))
            assert [each.payload for each in got] == ["b", "a"]
            assert [each.id for each in got] == ids[name]
        for topic in (x, y):
            topic.publish("end")
            for agent in agents:
                at = Topic(agent, topic.name)
                wait_for_committed(at, "b", "a", "end")
                assert [each.id for each in poll_committed(at, limit=1)][:2] == ids[topic.name]
                assert at.wait_for_payloads("a", "b", "end")
                with at.stream("0", isolation=COMMITTED) as late, at.stream("0") as late_raw:
                    assert [each.payload for each in received(late.take(3))] == ["b", "a", "end"]
                    got = received(late_raw.take(3))
                    assert [each.payload for each in got] == ["a", "b", "end"]


def test_committed_readers_never_see_an_aborted_transaction(agents: Agents) -> None:
    one, two, three = agents
    topic = Topic(one, "abort/t").create()
    with Topic(two, topic.name).stream(isolation=COMMITTED) as live:
        txn = Txn.begin(one)
        txn.write(*records(topic, "x", "y"))
        aborted = txn.at(two).abort()
        assert (aborted["state"], aborted["reason"]) == ("aborted", "aborted by the client")
        for agent in agents:
            same = txn.at(agent)
            assert same.try_commit(2).status == 409
            assert same.try_write(record(topic, 2, "z")).status == 409
            assert same.abort() == aborted == same.shown()
        topic.publish("end")
        assert [each.payload for each in received(live.take(1))] == ["end"]
    for agent in agents:
        at = Topic(agent, topic.name)
        wait_for_committed(at, "end")
        assert at.wait_for_payloads("x", "y", "end")
        with at.stream("0", isolation=COMMITTED) as late:
            assert [each.payload for each in received(late.take(1))] == ["end"]
    log = Topic(three, "system/_txn.default")
    told = [json.loads(each["payload"]) for each in ok(log.try_poll()).json]
    assert [each["event"] for each in told if each["txn"] == txn.id] == ["begin", "abort"]


def test_a_request_whose_answer_was_lost_is_repeated_at_another_agent(agents: Agents) -> None:
    one, two, three = agents
    topic = Topic(one, "retry/t").create()
    txn = Txn.begin(one)
    written = records(topic, "a", "b", "c")
    for count, agent in ((1, one), (2, two), (3, three)):
        lose_answer(agent, f"{txn.path}/records", {"records": written[:count]})
        txn.at(agents[count % 3]).write(*written[:count])
    clash = txn.at(two).try_write(record(topic, 1, "B"))
    assert (clash.status, "lsn 1" in clash.json["detail"]) == (409, True)
    for wrong in (4, 5):
        refused = txn.at(three).try_commit(wrong)
        assert refused.status == 409
        assert txn.at(three).shown()["state"] == "open"
    lose_answer(two, f"{txn.path}/commit", {"records": 3})
    commit = txn.commit(3)
    for agent in agents:
        assert txn.at(agent).shown()["records"] == 3
        assert txn.at(agent).commit(3) == commit
        assert txn.at(agent).try_commit(2).status == 409
        assert txn.at(agent).try_abort().status == 409
        at = Topic(agent, topic.name)
        wait_for_committed(at, "a", "b", "c")
        assert [each.id for each in poll_committed(at)] == commit["records"]
        assert sorted(each.payload for each in at.poll_all()) == ["a", "b", "c"]
    assert txn.shown()["commit"] == commit["commit"]


def lose_answer(agent: Agent, path: str, body: object) -> None:
    """Send a request and hang up without an answer: it is carried out, or it is not."""
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with closing(socket.create_connection(("127.0.0.1", agent.port))) as sock:
        sock.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)


def test_a_reader_that_is_cut_within_a_commit_resumes_at_the_next_record(agents: Agents) -> None:
    one, two, _ = agents
    topic = Topic(one, "cut/t").create()
    topic.publish("before")
    txn = Txn.begin(two, topic=topic.name)
    txn.write(*records(topic, "a", "b", "c"))
    ids = txn.commit(3)["records"]
    topic.publish("after")
    for agent in agents:
        wait_for_committed(Topic(agent, topic.name), "before", "a", "b", "c", "after")
    expected = [*ids, topic.poll()[-1].id]
    payloads = ["a", "b", "c", "after"]

    # Streams
    with Topic(two, topic.name).stream("0", isolation=COMMITTED) as stream:
        start = received(stream.take(3))
        assert [each.payload for each in start] == ["before", "a", "b"]
    for agent in agents:
        at = Topic(agent, topic.name)
        for number in range(3):
            with at.stream(ids[number], isolation=COMMITTED) as stream:
                rest = received(stream.take(3 - number))
                assert [each.payload for each in rest] == payloads[number + 1 :]
                assert [each.id for each in rest] == expected[number + 1 :]
        # Polls in JSON
        for number in range(3):
            for inclusive in (False, True):
                rest = at.poll(ids[number], isolation=COMMITTED, inclusive=inclusive)
                wanted = slice(number + (not inclusive), None)
                assert [each.payload for each in rest] == payloads[wanted]
                assert [each.id for each in rest] == expected[wanted]
            assert not at.has_gap(ids[number])
        pages = [each.id for each in poll_committed(at, limit=2)]
        assert pages[1:] == expected
        # Polls in Avro
        avro = Client(agent, topic.name)
        for number in range(3):
            found = poll_avro(avro, bytes.fromhex(ids[number]))
            assert (
                found
                == [
                    (bytes.fromhex(id_), payload.encode())
                    for id_, payload in zip(expected, payloads, strict=True)
                ][number + 1 :]
            )


def poll_avro(client: Client, start: bytes) -> list[tuple[bytes, bytes]]:
    """Poll committed messages after an id."""
    request = {"startFrom": start, "inclusive": False, "limit": None, "transaction": None}
    body = written(client.poll_schema, request)
    answer = client.agent.request("POST", f"{client.path}/poll?isolation={COMMITTED}", body, AVRO)
    read: Any = fastavro.schemaless_reader(io.BytesIO(ok(answer).body), client.answer_schema, None)
    return [(each["id"], each["payload"]) for each in read]


def test_operations_of_a_commit_enter_the_oplog_of_all_agents_with_their_place(
    agents: Agents,
) -> None:
    one, two, _ = agents
    topic = Topic(one, "oplog/t").create()
    with ExitStack() as stack:
        streams = [stack.enter_context(agent.follow()) for agent in agents]
        txn = Txn.begin(one)
        made = [
            {"event": event, "type": "thing", "id": id_}
            for event, id_ in (("insert", "1"), ("update", "2"), ("delete", "1"))
        ]
        txn.write(
            record("system/oplog", 0, made[0]),
            record(topic, 1, "m"),
            record("system/oplog", 2, json.dumps(made[1])),
        )
        txn.at(two).write(record("system/oplog", 3, made[2]))
        ids = txn.at(two).commit(4)["records"]
        for stream in streams:
            events = stream.take(3)
            assert [each.id for each in events] == [ids[0], ids[2], ids[3]]
            assert [each.event for each in events] == ["insert", "update", "delete"]
            places = [(each.operation["txn"], each.operation["lsn"]) for each in events]
            assert places == [(txn.id, 0), (txn.id, 2), (txn.id, 3)]
            assert {each.operation["of"] for each in events} == {3}
    for agent in agents:
        for number, id_ in enumerate((ids[0], ids[2])):
            with agent.follow(id_) as stream:
                assert [each.id for each in stream.take(2 - number)] == [ids[2], ids[3]][number:]
        objects = agent.replicate(types="thing")
        assert [*objects] == ["thing/2"]
        assert not {"txn", "lsn", "of"} & objects["thing/2"].operation.keys()
