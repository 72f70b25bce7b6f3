"""Servers away or killed, lost answers, wrong clocks: nothing acknowledged is lost or doubled."""

import gzip
import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from oplogd.clock import now_ms
from oplogd.model.operation import format_ms
from oplogd.store.mongo.link.layout import LOG, STATES
from tests.kits.agents.agent import DEADLINE, Agent, Event, fold
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.mongo.agents import (
    LONGEST_PAUSE,
    adds_up,
    agent,
    come_back,
    is_folded,
    operation,
    replicated,
    wait_for,
)
from tests.kits.proxies.mongo import CommandProxy
from tests.kits.servers.mongo import MongoServer, ferretdb, with_database
from tests.kits.sse.stream import Stream

# Options with which an agent soon notices that its server is unreachable.
AWAY = "?socketTimeoutMS=2000&serverSelectionTimeoutMS=1000&connectTimeoutMS=1000"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MongoServer]:
    """A FerretDB of the test's own, to stop and to kill."""
    with ferretdb(tmp_path / "data") as running:
        yield running


# How long an agent tries to reach a server that is unreachable, by AWAY.
TRY_SECONDS = 2


def numbers(events: list[Event]) -> list[int]:
    return [int(event.operation["id"]) for event in events]


def until_id(stream: Stream, id_: str) -> list[Event]:
    """Return the events up to the first operation on the object of this id."""
    events = stream.take(1)
    while not events[-1].data or events[-1].operation["id"] != id_:
        events += stream.take(1)
    return events


class AgentLoad:
    """Sends operations on new objects: one by one from ``threads``, and in bursts over UDP."""

    def __init__(self, agents: list[Agent], threads: int) -> None:
        self._agents = agents
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.udp: list[int] = []
        self._threads = [
            threading.Thread(target=self._post, args=(n,), daemon=True) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def burst(self, size: int) -> None:
        """Send ``size`` operations over UDP to each agent."""
        for each in self._agents:
            sent = [next(self._numbers) for _ in range(size)]
            each.send_udp(*map(operation, sent))
            self.udp += sent

    def wait_acknowledged(self, more: int) -> None:
        enough = len(self.acknowledged) + more
        wait_for("operations are acknowledged", lambda: len(self.acknowledged) >= enough)

    def wait_refused(self) -> None:
        wait_for("an operation is refused", lambda: self.refused)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(2 * DEADLINE)
            assert not thread.is_alive(), "a producer did not end"

    def _post(self, turn: int) -> None:
        while not self._ended.wait(0.02):
            number = next(self._numbers)
            status = self._agents[turn % len(self._agents)].post(operation(number))
            (self.acknowledged if status == 204 else self.refused).append(number)


@pytest.mark.parametrize(("how", "tries"), [("stopped", 4), ("killed", 2)])
def test_a_server_that_is_away_under_load_loses_and_doubles_nothing(
    how: str, tries: int, server: MongoServer, tmp_path: Path
) -> None:
    url = with_database(server.url, "away") + AWAY
    clock = MovedClock(tmp_path)
    moved: dict[str, Any] = {"make": MovedAgent, "environ": clock.environ}
    with (
        agent(tmp_path, url, "capped", **moved) as first,
        agent(tmp_path, url, "capped", **moved) as second,
        first.follow() as one,
        second.follow() as two,
    ):
        agents = [first, second]
        load = AgentLoad(agents, 3)
        load.burst(10)
        load.wait_acknowledged(20)
        if how == "killed":
            server.kill()
        else:
            server.stop()
        load.burst(30)
        for _ in range(tries):
            threading.Event().wait(TRY_SECONDS)
            clock.move(LONGEST_PAUSE)
        load.wait_refused()
        for each in agents:
            each.wait_status(status="DEGRADED")
        if how == "killed":
            server.start()
        else:
            server.go_on()
        clock.move(LONGEST_PAUSE)
        load.burst(10)
        load.wait_acknowledged(20)
        load.end()
        for each in agents:
            status = each.wait_status(status="OK", queue_size=0)
            assert status["events_dropped_kernel"] == 0
        assert first.post({"event": "insert", "type": "last", "id": "-1"}) == 204
        events = until_id(one, "-1")
        assert until_id(two, "-1") == events
        assert [int(event.id[12:], 16) for event in events] == list(range(1, len(events) + 1))
        seen = Counter(numbers(events))
        assert [number for number, count in seen.items() if count != 1] == []
        assert seen.keys() >= {*load.acknowledged, *load.udp}
        assert seen.keys() <= {*load.acknowledged, *load.udp, *load.refused, -1}
        assert replicated(first) == replicated(second) == fold(events)


def test_an_answer_that_is_lost_doubles_nothing(plain_url: str, tmp_path: Path) -> None:
    with (
        CommandProxy(plain_url) as proxy,
        agent(tmp_path, proxy.url(), "plain") as only,
        only.follow() as stream,
    ):
        assert only.post(operation(0)) == 204
        proxy.cut_answers("insert", LOG, 2)
        only.send_udp(*(operation(number) for number in range(1, 16)))
        wait_for("an answer to the writer is lost", lambda: proxy.cuts >= -1)
        # The first insert had none of these, so another insert follows.
        only.send_udp(*(operation(number) for number in range(16, 31)))
        only.wait_status(events_ingested=31, queue_size=0)
        assert proxy.cuts == 0
        wait_for("it is folded", lambda: is_folded(only))
        proxy.cut_answers("insert", STATES, 1)
        assert only.post(operation(31)) == 204
        wait_for("an answer to the fold is lost", lambda: proxy.cuts == 0)
        assert only.post(operation(32)) == 204
        events = stream.take(33)
        assert numbers(events) == list(range(33))
        assert replicated(only) == fold(events)


def test_the_spool_brings_udp_operations_over_a_restart(
    server: MongoServer, tmp_path: Path
) -> None:
    url = with_database(server.url, "spooled") + AWAY
    flags = ("--spool", str(tmp_path / "spool.db"))
    clock = MovedClock(tmp_path)
    moved: dict[str, Any] = {"make": MovedAgent, "environ": clock.environ}
    with agent(tmp_path, url, "capped", *flags, **moved) as first:
        assert first.post(operation(0)) == 204
        server.kill()
        first.send_udp(*(operation(number) for number in range(1, 51)))
        wait_for("all are spooled", lambda: first.status()["spool"]["operations"] == 50)
        first.wait_status(queue_size=0, events_ingested=1, events_spooled=50)
        assert adds_up(first)
        first.kill()
    with agent(tmp_path, url, "capped", *flags, **moved) as second:
        status = second.status()
        assert (status["status"], status["spool"]["operations"]) == ("DEGRADED", 50)
        assert (
            status["events_recovered"],
            status["events_received"],
            status["events_ingested"],
        ) == (50, 0, 0)
        second.send_udp(*(operation(number) for number in range(51, 101)))
        wait_for("all are spooled", lambda: second.status()["spool"]["operations"] == 100)
        assert adds_up(second)
        come_back(server, clock)
        wait_for("the spool is sent", lambda: second.status()["spool"]["operations"] == 0)
        second.wait_status(
            status="OK",
            events_ingested=100,
            events_received=50,
            events_recovered=50,
            events_spooled=50,
        )
        assert adds_up(second)
        second.post(operation(101))
        with second.follow() as stream:
            second.post(operation(102))
            (last,) = stream.take(1)
        assert int(last.id[12:], 16) == 103
        assert sorted(map(int, (key.partition("/")[2] for key in replicated(second)))) == list(
            range(103)
        )


def test_a_log_that_is_dropped_and_made_smaller_goes_on_for_agents_and_consumers(
    server: MongoServer, tmp_path: Path
) -> None:
    url = with_database(server.url, "dropped")
    with (
        MongoClient[dict[str, Any]](url) as client,
        agent(tmp_path, url, "capped") as first,
        agent(tmp_path, url, "capped") as second,
        first.follow("0") as one,
        second.follow("0") as two,
    ):
        database = client.get_default_database()
        seen: list[list[Event]] = [[], []]
        for part, size in enumerate((0, 0, 1 << 20)):  # as it is; dropped; made anew by hand
            for each in (first, second) if size else ():
                each.freeze()  # else a write of theirs may create a plain collection in between
            if part:
                database["oplog_ops"].drop()
            if size:
                database.create_collection("oplog_ops", capped=True, size=size)
            for each in (first, second) if size else ():
                each.thaw()
            for number in range(30):
                body = {
                    "event": ("insert", "delete")[number % 2],
                    "type": "t",
                    "id": f"{part}-{number // 3}",
                }
                wait_for(
                    "it is stored",
                    lambda each=(first, second)[number % 2], body=body: each.post(body) == 204,
                )
            last = {"event": "insert", "type": "t", "id": f"last of {part}"}
            wait_for("it is stored", lambda last=last: first.post(last) == 204)
            for events, stream in zip(seen, (one, two), strict=True):
                events += until_id(stream, str(last["id"]))
            for each in (first, second):
                wait_for("it is folded", lambda each=each: is_folded(each))
        (options,) = [
            each["options"] for each in database.list_collections() if each["name"] == "oplog_ops"
        ]
        assert options["size"] == 1 << 20
        expected = replicated(first)
        assert replicated(second) == expected
        assert {f"t/last of {part}" for part in range(3)} < expected.keys()
        for events in seen:
            offsets = [int(event.id[12:], 16) for event in events if len(event.id) == 24]
            assert offsets == sorted(set(offsets))
            assert fold(events) == expected


def test_an_agent_with_its_clock_an_hour_ahead_harms_nobody(plain_url: str, tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    clock.set(3600)
    with (
        agent(tmp_path, plain_url, "plain", make=MovedAgent, environ=clock.environ) as wrong,
        agent(tmp_path, plain_url, "plain") as right,
    ):
        with right.follow() as stream:
            for number in range(10):
                assert (wrong, right)[number % 2].post(operation(number)) == 204
            events = stream.take(10)
        times = [int(event.id[:8], 16) * 1000 + int(event.id[8:12], 16) for event in events]
        assert times == sorted(times)
        assert abs(times[-1] - now_ms()) < 60_000
        stamped = [event.operation["timestamp"] for event in events]
        assert max(stamped) < format_ms(now_ms() + 60_000)
        with wrong.follow(events[4].id) as resumed:
            assert resumed.take(5) == events[5:]
        assert replicated(wrong) == replicated(right) == fold(events)


def test_a_real_history_through_two_agents_replicates_to_its_dump(
    plain_url: str, shared_data: Path, tmp_path: Path
) -> None:
    with gzip.open(shared_data / "flask" / "ops.jsonl.gz") as file:
        lines = file.read().splitlines()
    with gzip.open(shared_data / "flask" / "dump.jsonl.gz") as file:
        dump = [json.loads(line) for line in file]
    with (
        agent(tmp_path, plain_url, "plain") as first,
        agent(tmp_path, plain_url, "plain") as second,
    ):
        for turn, start in enumerate(range(0, len(lines), 500)):
            body = b"\n".join(lines[start : start + 500])
            assert (first, second)[turn % 2].post(
                body, {"Content-Type": "application/x-ndjson"}
            ) == 200
        assert first.status()["store"]["ops"] == len(lines) == 7_354
        for each in (first, second):
            objects = [event.operation for event in each.replicate().values()]
            assert sorted(objects, key=str) == sorted(dump, key=str)
