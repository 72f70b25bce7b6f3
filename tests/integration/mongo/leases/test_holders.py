"""Holders of the lease that are killed, stopped or late: the states stay the fold of the log."""

import http.client
import itertools
import json
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from tests.kits.agents.agent import DEADLINE, Agent, fold
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.models.properties import EXAMPLES
from tests.kits.mongo.agents import agent, is_folded, replicated, wait_for
from tests.kits.proxies.mongo import CommandProxy

FOLDS = "this agent folds the log into the states now"


def last_fold(*agents: Agent) -> str:
    """Return when one of these last began to fold, by its log; empty: never."""
    return max(
        (line[:24] for each in agents for line in list(each.log) if FOLDS in line), default=""
    )


LEASE_SECONDS = 60

# More than the number of objects, so that a batch changes most of them twice.
OBJECTS, BATCH = 60, 100


# Kills of a holder; more of them in `make soak`.
KILLS = max(5, EXAMPLES // 20)


class Updates(threading.Thread):
    """Sends batches of updates to the newest agent, until ``end``.

    They change few objects, and each batch one of its own, which tells whether it was folded. A
    batch without an answer is sent again.
    """

    def __init__(self, agents: list[Agent]) -> None:
        super().__init__(daemon=True)
        self.agents = agents
        self.last: dict[str, str] = {}
        self.error: BaseException | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            ids = [str(n % OBJECTS) for n in range(BATCH - 1)]
            for number in itertools.count(step=BATCH):
                batch = [
                    {"event": "update", "type": "video", "id": id_, "parents": [str(n)]}
                    for n, id_ in enumerate([f"of {number}", *ids], number)
                ]
                while not self._send(batch):
                    pass
                self.last |= {f"video/{each['id']}": str(n) for n, each in enumerate(batch, number)}
                if self._ended.wait(0.2):
                    return
        except BaseException as error:
            self.error = error

    def _send(self, batch: list[dict[str, Any]]) -> bool:
        try:
            return self.agents[-1].post(batch) == 200
        except (OSError, http.client.HTTPException):  # it was killed
            return False

    def end(self) -> None:
        self._ended.set()
        self.join(2 * DEADLINE)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def test_killed_holders_of_the_lease_leave_states_that_are_the_fold(
    plain_url: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(
            MongoClient[dict[str, Any]](plain_url)
        ).get_default_database()

        def start() -> Agent:
            return stack.enter_context(agent(tmp_path, plain_url, "plain", "--lease", "1s"))

        def lease() -> tuple[str, int]:
            found = database["oplog_meta"].find_one({"_id": "oplog_ops:lease"}) or {}
            return found["holder"], found["revision"]

        def folded() -> int:
            return int((database["oplog_meta"].find_one({"_id": "oplog_ops"}) or {})["n"])

        agents = [start(), start()]
        updates = Updates(agents)
        updates.start()
        holders = []
        for _ in range(KILLS):
            wait_for("an agent folds", lambda agents=agents: last_fold(*agents))
            before = folded()
            wait_for("it folds what is sent now", lambda before=before: folded() > before)
            dead, revision = lease()
            [holder] = [each for each in agents if f":{each.process.pid}:" in dead]
            [other] = [each for each in agents if each is not holder]
            holder.process.kill()
            holder.wait()
            holders.append(dead)
            wait_for("another one has the lease", lambda dead=dead: lease()[0] != dead)
            assert lease()[1] > revision
            before = folded()
            wait_for("it folds what is sent now", lambda before=before: folded() > before)
            agents = [other, start()]
            updates.agents = agents
        updates.end()
        assert len(set(holders)) == KILLS
        log = list(database["oplog_ops"].find().sort("n", 1))
        assert [entry["n"] for entry in log] == list(range(1, len(log) + 1))
        wait_for("all is folded", lambda: folded() == len(log))
        assert {
            f"video/{entry['data']['id']}": entry["data"]["p"][0] for entry in log
        } == updates.last
        for each in agents:
            states = {key: json.loads(data)["parents"][0] for key, data in replicated(each).items()}
            assert states == updates.last


def test_a_late_write_of_an_old_holder_of_the_lease_changes_nothing(
    plain_url: str, tmp_path: Path
) -> None:
    batches = [
        [{"event": "update", "type": "t", "id": str(n), "parents": [str(b)]} for n in range(100)]
        for b in range(3)
    ]
    # The holder never loses its lease because the machine is busy: the test moves the other's time.
    clock, flags = MovedClock(tmp_path), ("--lease", f"{LEASE_SECONDS}s")
    moved: dict[str, Any] = {"make": MovedAgent, "environ": clock.environ}
    with CommandProxy(plain_url) as proxy, agent(tmp_path, proxy.url(), "plain", *flags) as holder:
        wait_for("it folds", lambda: last_fold(holder))
        with agent(tmp_path, plain_url, "plain", *flags, **moved) as other:
            assert other.post(batches[0]) == 200
            wait_for("it is folded", lambda: is_folded(other))
            with proxy.hold("update"):
                assert other.post(batches[1]) == 200
                wait_for("the late write is held", lambda: proxy.held)
                clock.move(LEASE_SECONDS)
                wait_for("another one folds", lambda: last_fold(other) > last_fold(holder))
                assert other.post(batches[2]) == 200
                wait_for("it is folded", lambda: is_folded(other))
            wait_for("the late write is carried out", lambda: proxy.late)
            states = {json.loads(data)["parents"][0] for data in replicated(other).values()}
            assert states == {"2"}


def test_a_stopped_holder_of_the_lease_changes_nothing_when_it_goes_on(
    plain_url: str, tmp_path: Path
) -> None:
    flags = ("--lease", "500ms")
    with (
        agent(tmp_path, plain_url, "plain", *flags) as holder,
        agent(tmp_path, plain_url, "plain", *flags) as other,
    ):
        wait_for("it folds", lambda: last_fold(holder))
        with other.follow() as stream:
            batches = [
                [
                    {"event": "update", "type": "t", "id": str(n), "parents": [f"{b}"]}
                    for n in range(500)
                ]
                for b in range(4)
            ]
            assert other.post(batches[0]) == 200
            holder.freeze()
            for batch in batches[1:]:
                assert other.post(batch) == 200
            wait_for("another one folds", lambda: last_fold(other) > last_fold(holder))
            expected = fold(stream.take(2000))
            assert replicated(other) == expected
            holder.thaw()
            assert holder.post({"event": "insert", "type": "t", "id": "last"}) == 204
            expected = fold(stream.take(1), expected)
        assert replicated(holder) == replicated(other) == expected
