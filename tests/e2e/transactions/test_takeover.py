"""A commit in the oplog of MongoDB is completed by another agent when its coordinator is killed."""

import http.client
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.transactions.killed_agent import OPERATIONS_VARIABLE, PAGES_VARIABLE
from tests.kits.agents.agent import Agent, Event
from tests.kits.clock.moved import StoreClock
from tests.kits.servers.stores import new_place

# Operations that the killed agent appends at a time, and how often it does so.
PAGES = 4
# Longer than the keeper waits, and the test takes.
LATER_SECONDS = 3_600


class KilledAgent(Agent):
    """It is killed in the middle of a commit of operations."""

    program = ("-m", "tests.e2e.transactions.killed_agent")


def operation(number: int) -> dict[str, Any]:
    return {"event": "insert", "type": "video", "id": f"n{number}", "parents": ["a"]}


def post(agent: Agent, path: str, body: dict[str, Any]) -> Any:
    answer = agent.request("POST", f"/v1/txns{path}", body)
    assert answer.status in (200, 201), answer
    return answer.json


def begun_with(agent: Agent, count: int) -> str:
    """Begin a transaction with so many operations. Return its id."""
    txn: str = post(agent, "", {})["txn"]
    records = [
        {"topic": "system/oplog", "lsn": lsn, "payload": operation(lsn)} for lsn in range(count)
    ]
    post(agent, f"/{txn}/records", {"records": records})
    return txn


def check(events: list[Event], txn: str, count: int) -> None:
    """Demand that these are all operations of a transaction, in order, each with its place."""
    assert [(each.event, each.operation) for each in events] == [
        (
            "insert",
            {
                **{name: value for name, value in operation(lsn).items() if name != "event"},
                "timestamp": events[lsn].operation["timestamp"],
                "txn": txn,
                "lsn": lsn,
                "of": count,
            },
        )
        for lsn in range(count)
    ]


@pytest.mark.parametrize(
    ("sort", "count", "is_asked"),
    [("mongo-plain", 1_000, False), ("mongo-capped", 100, True)],
    ids=["by the keeper", "by a repeated request"],
)
def test_an_oplog_commit_whose_coordinator_is_killed_in_the_middle_is_completed(
    request: pytest.FixtureRequest, sort: str, count: int, is_asked: bool, tmp_path: Path
) -> None:
    place = new_place(request, sort)
    page = count // 10
    environ = {PAGES_VARIABLE: str(PAGES), OPERATIONS_VARIABLE: str(page)}
    # The keeper leaves a decided transaction to its own agent for some seconds.
    clock = StoreClock(place, tmp_path)
    clock.stop(0)
    with (
        clock.agent() as other,
        place.agent(tmp_path, make=KilledAgent, environ=environ) as killed,
        other.follow() as stream,
    ):
        txn = begun_with(killed, count)
        with pytest.raises((OSError, http.client.HTTPException)):
            post(killed, f"/{txn}/commit", {"records": count})
        assert killed.wait() == -9
        events = stream.take(PAGES * page)
        assert other.post({"event": "insert", "type": "video", "id": "between"}) == 204
        between = stream.take(1)[0]
        assert "txn" not in between.operation
        if is_asked:
            post(other, f"/{txn}/commit", {"records": count})
        else:
            clock.stop(LATER_SECONDS)
        events += stream.take(count - len(events))
        check(events, txn, count)
        commit = post(other, f"/{txn}/commit", {"records": count})
        assert commit["records"] == [each.id for each in events]
        assert other.request("GET", f"/v1/txns/{txn}").json["state"] == "committed"
        every = [*events[: PAGES * page], between, *events[PAGES * page :]]
        for last in (events[page], between, events[-2]):
            rest = every[every.index(last) + 1 :]
            with other.follow(last.id) as resumed:
                assert resumed.take(len(rest)) == rest
        objects = other.replicate()
        assert len(objects) == count + 1
        assert not any({"txn", "lsn", "of"} & each.operation.keys() for each in objects.values())
