"""An agent dies at each step of a transaction; requests at others, or the keeper, finish it.

Everything is seen from outside. An agent that dies keeps its transactions at their steps, one per
crash. On MongoDB it dies once for all of them; a step on SQLite keeps the whole file waiting.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.transactions.crashed import (
    ENDERS,
    NO_KEEPER,
    Crashed,
    HeldAgent,
    Killed,
    crashed_on_mongo,
    crashed_on_sqlite,
    kill_on_sqlite,
)
from tests.e2e.transactions.crashes import (
    CLIENT,
    CRASHES,
    RECORDS,
    TIMEOUT,
    Crash,
    Hold,
    Work,
    lost,
    told,
)
from tests.kits.agents.agent import Agent, Event
from tests.kits.agents.topics import Topic, ok, received, wait_for_messages
from tests.kits.agents.transactions import (
    COMMITTED,
    Txn,
    committed,
    record,
    wait_for_committed,
)
from tests.kits.mongo.agents import wait_for
from tests.kits.servers.mongo import RunningMongo, new_database
from tests.kits.servers.stores import SORTS, StorePlace


@pytest.fixture(scope="module")
def make_crashed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Crashed]]:
    """Return a function of sort and ender. It keeps the last result.

    A fixture with parameters would be made again for each test.
    """
    made: dict[tuple[str, str], Crashed] = {}
    killed: list[Killed] = []

    def make(sort: str, ender: str) -> Crashed:
        if (sort, ender) not in made:
            stack.close()
            made.clear()
            folder = tmp_path_factory.mktemp("crashed")
            server, kind = SORTS[sort]
            if server is not None:
                running: RunningMongo = request.getfixturevalue(server)
                place = StorePlace(new_database(running.url), kind)
                entered = crashed_on_mongo(place, ender, CRASHES[sort], folder)
            else:
                if not killed:
                    killed.append(kill_on_sqlite(CRASHES[sort], tmp_path_factory.mktemp("killed")))
                entered = crashed_on_sqlite(killed[0], ender, folder / "store")
            made[sort, ender] = stack.enter_context(entered)
        return made[sort, ender]

    with ExitStack() as stack:
        yield make


@pytest.fixture
def crashed(sort: str, ender: str, make_crashed: Callable[[str, str], Crashed]) -> Crashed:
    return make_crashed(sort, ender)


@pytest.mark.parametrize(
    ("sort", "ender", "crash"),
    [
        pytest.param(sort, ender, crash, id=f"{sort}-{ender}-{crash.name}")
        for sort, found in CRASHES.items()
        for ender in ENDERS
        for crash in found
    ],
)
def test_a_transaction_whose_agent_dies_is_decided_once_everywhere(
    crashed: Crashed, ender: str, crash: Crash
) -> None:
    work = crashed.works[crash]
    one, two = crashed.agents
    assert [bool(work.id)] == [crash.request != "begin"]
    listed = work.listed(one)
    assert len(listed) == crash.is_begun
    if not crash.is_begun:
        check_readers(crashed, work, TIMEOUT, is_appended=False)
        if crash.scope == "group":
            assert told(two, work.commit_log) == []
        return
    if crash.request == "begin":
        work.id = listed[0]["txn"]
    assert listed[0]["txn"] == work.id
    if ender == "asked":
        assert listed[0]["state"] == crash.state
        reason = end_by_request(work, one)
    else:
        reason = wait_for_keeper(work, one)
    check_readers(crashed, work, reason, is_appended=crash.is_appended or ender == "asked")
    check_decision(crashed, work, reason)


def end_by_request(work: Work, agent: Agent) -> str | None:
    """Repeat the request. Return the reason of an abort."""
    txn, crash = Txn(agent, work.id), work.crash
    if crash.request == "begin":  # the client does not know that it has begun
        assert txn.abort()["reason"] == CLIENT
        return CLIENT
    if crash.request == "write":
        if not crash.is_written:
            refused = txn.try_commit(RECORDS)
            assert (refused.status, "missing" in refused.json["detail"]) == (409, True), refused
        ok(work.ask(agent))
        txn.commit(RECORDS)
        return None
    if crash.state != "open":  # decided: the opposite is refused
        opposite = txn.try_abort() if crash.request == "commit" else txn.try_commit(RECORDS)
        assert opposite.status == 409
    ok(work.ask(agent))
    return CLIENT if crash.request == "abort" else None


def wait_for_keeper(work: Work, agent: Agent) -> str | None:
    """Wait until the keeper has ended a transaction. Return the reason of an abort."""

    def ended() -> bool:
        (listed,) = work.listed(agent)
        return listed["state"] in ("committed", "aborted")

    wait_for(f"the end of {work.crash}", ended)
    if work.crash.scope == "group":
        wait_for(
            f"the record of {work.crash}",
            lambda: told(agent, work.commit_log)[-1]["event"] in ("commit", "abort"),
        )
    if work.crash.state == "open":
        return TIMEOUT
    return CLIENT if work.crash.request == "abort" else None


def check_readers(crashed: Crashed, work: Work, reason: str | None, *, is_appended: bool) -> None:
    """Publish plain messages behind a transaction, and check all that consumers see."""
    one, _ = crashed.agents
    for name in work.names:
        Topic(one, name).publish("after")
    wrote = 0 if work.crash.request == "begin" else RECORDS if is_appended else RECORDS // 2
    ids = [] if reason else Txn(one, work.id).commit(RECORDS)["records"]
    for name in work.names:
        lsns = work.lsns(name)
        seen = [] if reason else [f"{lsn}" for lsn in lsns]
        expected = ["before", *seen, "after"]
        stream = received(crashed.streams[name].take(len(expected)))
        assert [each.payload for each in stream] == expected
        if ids:
            assert [each.id for each in stream[1:-1]] == [ids[lsn] for lsn in lsns]
        for agent in crashed.agents:
            topic = Topic(agent, name)
            poll = partial(topic.poll, isolation=COMMITTED)  # all fit into a page
            assert wait_for_messages(topic, expected, poll) == stream
            there = ["before", *(f"{lsn}" for lsn in lsns if lsn < wrote), "after"]
            wait_for_messages(topic, there, topic.poll)
    end = f"{work.crash.name}-end"
    assert one.post({"event": "insert", "type": "thing", "id": end}) == 204
    for agent in crashed.agents:
        with agent.follow(crashed.start) as stream_:
            events: list[Event] = []
            while not events or events[-1].operation["id"] != end:
                events += stream_.take(1)
        own = [each for each in events if each.operation.get("txn") == work.id]
        lsns = [] if reason else work.lsns("system/oplog")
        assert [each.id for each in own] == [ids[lsn] for lsn in lsns]
        places = [(each.operation["lsn"], each.operation["of"]) for each in own]
        assert places == [(lsn, len(lsns)) for lsn in lsns]
        named = [each.operation["id"] for each in events]
        assert [each for each in named if each.startswith(f"{work.crash.name}-")] == [
            *(f"{work.crash.name}-{lsn}" for lsn in lsns),
            end,
        ]


def check_decision(crashed: Crashed, work: Work, reason: str | None) -> None:
    """Check that all agents tell one decision, and keep to it."""
    shown, committed_as = [], []
    for agent in crashed.agents:
        txn = Txn(agent, work.id)
        shown.append(txn.shown())
        assert shown[-1]["state"] == ("aborted" if reason else "committed")
        assert shown[-1].get("reason") == reason
        assert reason or shown[-1]["records"] == RECORDS
        assert txn.try_commit(RECORDS + 1).status == 409
        if reason:
            assert txn.try_commit(RECORDS).status == 409
            assert txn.abort() == shown[-1]
        else:
            committed_as.append(txn.commit(RECORDS))
            assert txn.try_abort().status == 409
        if work.crash.scope == "group":
            begun = ["begin"] * work.crash.has_begin_record
            end = "abort" if reason else "commit"
            records = told(agent, work.commit_log)
            assert [each["event"] for each in records] == [*begun, end]
            assert {each["txn"] for each in records} == {work.id}
            assert records[-1].get("reason") == reason
    assert shown[0] == shown[1]
    assert committed_as[:1] == committed_as[1:]


@pytest.mark.parametrize("place", ["mongo-plain"], indirect=True)
def test_transactions_of_one_group_keep_the_order_of_their_commit_records(
    place: StorePlace, tmp_path: Path
) -> None:
    """Their agent dies after it has written these records, and nothing else of the commits."""
    hold = Hold(tmp_path / "hold")
    with ExitStack() as stack:
        one, two = [
            stack.enter_context(place.agent(tmp_path, make=HeldAgent, environ=NO_KEEPER))
            for _ in range(2)
        ]
        dying = stack.enter_context(place.agent(tmp_path, make=HeldAgent, environ=hold.environ))
        names = ("order/x", "order/y")
        for name in names:
            Topic(dying, name).create()
        streams = [
            stack.enter_context(Topic(agent, name).stream("0", isolation=COMMITTED))
            for agent in (one, two)
            for name in names
        ]
        oplog = stack.enter_context(one.follow())
        blocking, *both = (Txn.begin(dying, group="order") for _ in range(3))
        for txn in both:
            made = {"event": "insert", "type": "thing", "id": txn.id}
            txn.write(
                *(record(name, lsn, txn.id) for lsn, name in enumerate(names)),
                record("system/oplog", 2, made),
            )
        # Both wait for the turn of the first one. So one step writes their commit records.
        hold.reach(dying, "commit-record", partial(blocking.try_commit, 0))
        answers = []
        for number, txn in enumerate(reversed(both), 2):
            answers.append(hold.submit(partial(txn.try_commit, 3)))
            dying.wait_log(f"step decided {number}.")
        hold.expect("commit-record", release=True)
        hold.wait(dying)
        dying.kill()
        for answer in answers:
            lost(answer)
        log = [each for each in told(one, "system/_txn.order") if each["event"] == "commit"]
        order = [each["txn"] for each in log if each["txn"] != blocking.id]
        assert len(order) == 2
        for name in names:
            assert committed(Topic(one, name)) == []
        later = Txn(two, order[1]).commit(3)  # must complete the earlier one first
        assert ok(one.request("GET", "/v1/txns?group=order&state=committing")).json == []
        for stream in streams:
            assert [each.payload for each in received(stream.take(2))] == order
        for agent in (one, two):
            for name in names:
                wait_for_committed(Topic(agent, name), *order)
            assert Txn(agent, order[1]).commit(3) == later
            assert [Txn(agent, id_).shown()["state"] for id_ in order] == ["committed"] * 2
            assert [
                each for each in told(agent, "system/_txn.order") if each["event"] == "commit"
            ] == log
        assert [each.operation["txn"] for each in oplog.take(2)] == order
    hold.close()
