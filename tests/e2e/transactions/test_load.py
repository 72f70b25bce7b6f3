"""Transactions under races and large numbers, over HTTP: none lost, none half, memory bounded."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event as Flag

import pytest

from tests.e2e.oplog.test_consumer_memory import resident_bytes
from tests.kits.agents.agent import DEADLINE, Agent, NewAgent
from tests.kits.agents.topics import Topic, ok, received
from tests.kits.agents.transactions import (
    COMMITTED,
    Talk,
    Txn,
    committed,
    poll_committed,
    record,
    records,
)
from tests.kits.models.properties import rounds
from tests.kits.servers.stores import StorePlace

# Threads that race, each with lines of its own.
RACERS = 4


@pytest.mark.parametrize(
    ("place", "races"),
    [("sqlite", rounds(160, 1000)), ("mongo-plain", rounds(100, 200))],
    indirect=["place"],
)
def test_of_a_commit_and_its_time_out_exactly_one_wins_in_each_of_many_races(
    place: StorePlace, races: int, tmp_path: Path
) -> None:
    """Each time-out follows the result of the race before, so that both sides win often."""
    with (
        place.agent(tmp_path) as one,
        place.agent(tmp_path) as two,
        ThreadPoolExecutor(2 * RACERS) as pool,
    ):
        topic = Topic(one, "race/t").create()

        def race(racer: int) -> tuple[list[str], list[str]]:
            won: list[str] = []
            lost: list[str] = []
            timeout = 10
            with closing(Talk(one)) as line, closing(Talk(two)) as other:
                for number in range(racer, races, RACERS):
                    begun = line.post("/v1/txns", {"timeout_ms": timeout})
                    if begun.status == 409:  # its time was over before the answer
                        assert "timed out" in begun.json["detail"], begun
                        lost.append(str(number))
                        timeout = timeout * 5 // 4 + 1
                        continue
                    assert begun.status == 201, begun
                    path = f"/v1/txns/{begun.json['txn']}"
                    wrote = line.post(
                        f"{path}/records", {"records": [record(topic, 0, str(number))]}
                    )
                    asked = pool.submit(other.get, path)
                    answer = line.post(f"{path}/commit", {"records": 1})
                    seen = ok(asked.result(DEADLINE)).json["state"]
                    after = ok(other.get(path)).json
                    if answer.status == 200:
                        won.append(str(number))
                        assert seen in ("open", "committing", "committed")
                        assert after["state"] == "committed"
                        timeout = max(1, timeout * 3 // 4)
                    else:
                        assert answer.status == 409, answer
                        assert "timed out" in answer.json["detail"], wrote
                        assert seen in ("open", "aborted")
                        assert (after["state"], after["reason"]) == ("aborted", "timed out")
                        lost.append(str(number))
                        timeout = timeout * 5 // 4 + 1
            return won, lost

        results = [
            each.result(6 * DEADLINE) for each in [pool.submit(race, n) for n in range(RACERS)]
        ]
        won = {number for each, _ in results for number in each}
        lost = {number for _, each in results for number in each}
        assert len(won) + len(lost) == races
        assert won
        assert lost
        for agent in (one, two):
            payloads = committed(Topic(agent, topic.name))
            assert sorted(payloads) == sorted(won)
        status = one.status()["transactions"]
        assert (status["open"], status["committed"]) == (0, len(won))
        told = status["timed_out"] + two.status()["transactions"]["timed_out"]
        assert told == len(lost)


@pytest.mark.parametrize(
    ("place", "total"), [("sqlite", 50_000), ("mongo-plain", 5000)], indirect=["place"]
)
def test_a_large_transaction_reaches_readers_whole_and_takes_little_memory(
    place: StorePlace, total: int, tmp_path: Path
) -> None:
    """The rings and the caches of the database are filled first: they have their own bounds."""
    page = 1000
    with (
        place.agent(tmp_path, "--ring-bytes", "4MB", make=NewAgent) as agent,
        ThreadPoolExecutor(1) as pool,
    ):
        warm = Topic(agent, "large/warm").create()
        with warm.stream(isolation=COMMITTED) as stream:
            transact(warm, total, page)
            assert len(stream.take(total)) == len(poll_committed(warm))
        topic = Topic(agent, "large/t").create()
        with topic.stream(isolation=COMMITTED) as stream:
            reset_peak(agent)
            before = resident_bytes(agent)
            streamed = pool.submit(stream.take, total)
            ids = transact(topic, total, page)
            got = received(streamed.result(4 * DEADLINE))
            polled = poll_committed(topic)
            grown = peak_bytes(agent) - before
        assert [each.payload for each in got] == [f"{lsn} {'x' * 50}" for lsn in range(total)]
        assert [each.id for each in got] == ids
        assert polled == got
        assert grown < 25_000_000


def transact(topic: Topic, total: int, page: int) -> list[str]:
    """Commit ``total`` records, written ``page`` at a time. Return their ids."""
    txn = Txn.begin(topic.agent)
    with closing(Talk(topic.agent)) as line:
        for first in range(0, total, page):
            payloads = [f"{lsn} {'x' * 50}" for lsn in range(first, first + page)]
            ok(
                line.post(
                    f"{txn.path}/records", {"records": records(topic, *payloads, first=first)}
                )
            )
    ids: list[str] = txn.commit(total)["records"]
    return ids


def reset_peak(agent: Agent) -> None:
    Path(f"/proc/{agent.process.pid}/clear_refs").write_text("5")


def peak_bytes(agent: Agent) -> int:
    """Return the most memory since ``reset_peak``."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def test_a_replication_shows_all_operations_of_a_commit_or_none(tmp_path: Path) -> None:
    """On SQLite, where a commit is one transaction of the database."""
    commits, each = 5, 1000
    with Agent(tmp_path) as agent, ThreadPoolExecutor(2) as pool:
        ended = Flag()

        def replicate() -> list[set[int]]:
            """Return the commits that each replication showed."""
            shown: list[set[int]] = []
            while not ended.is_set() or not shown:
                count = [0] * commits
                for event in agent.replicate().values():
                    count[int(event.operation["id"].partition(".")[0])] += 1
                assert set(count) <= {0, each}
                shown.append({number for number in range(commits) if count[number]})
            return shown

        readers = [pool.submit(replicate) for _ in range(2)]
        try:
            for number in range(commits):
                txn = Txn.begin(agent)
                made = [
                    {"event": "insert", "type": "thing", "id": f"{number}.{lsn}"}
                    for lsn in range(each)
                ]
                txn.write(*records("system/oplog", *made))
                ids = txn.commit(each)["records"]
                with agent.follow(ids[each // 2]) as stream:  # a cut in the middle
                    assert [event.id for event in stream.take(each // 2 - 1)] == ids[
                        each // 2 + 1 :
                    ]
        finally:
            ended.set()
        shown = [one for reader in readers for one in reader.result(2 * DEADLINE)]
        assert all(one == set(range(len(one))) for one in shown)
        assert len(agent.replicate()) == commits * each


def test_topics_go_on_without_the_tables_of_transactions(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, ExitStack() as stack:
        topic = Topic(agent, "plain/t").create()
        txn = Txn.begin(agent)
        txn.write(record(topic, 0, "seen uncommitted"))
        live, live_committed = [
            stack.enter_context(topic.stream(isolation=isolation))
            for isolation in ("read_uncommitted", COMMITTED)
        ]
        with closing(sqlite3.connect(tmp_path / "oplog.db", timeout=DEADLINE)) as db:
            for table in ("txns", "records"):
                db.execute(f"DROP TABLE {table}")
        for refused in (
            txn.try_commit(1),
            txn.try_write(record(topic, 1, "x")),
            agent.request("POST", "/v1/txns", {}),
        ):
            assert (refused.status, "retry-after" in refused.headers) == (503, True)
        for number in range(3):
            topic.publish(f"{number}")
            assert topic.payloads()[1:] == [f"{each}" for each in range(number + 1)]
            assert committed(topic) == [f"{each}" for each in range(number + 1)]
            for stream in (live, live_committed):
                assert [each.payload for each in received(stream.take(1))] == [f"{number}"]
        assert agent.post({"event": "insert", "type": "thing", "id": "1"}) == 204
        assert agent.request("GET", "/live").status == 200
