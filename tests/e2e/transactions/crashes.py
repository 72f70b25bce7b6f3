"""Crashes of an agent at each step of a transaction, seen from outside over HTTP."""

import http.client
import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, Answer
from tests.kits.agents.topics import Topic, ok
from tests.kits.agents.transactions import Txn, record, records

RECORDS = 6
CLIENT, TIMEOUT = "aborted by the client", "timed out"
# No transaction ends by itself while the requests at the others are repeated.
TIMEOUT_MS = 110_000


REQUESTS = ("begin", "write", "commit", "abort")


class Hold:
    """Tells an agent the step at which the next request stops. One that has stopped stays so."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._number = 0
        self._pool = ThreadPoolExecutor(64)
        self.environ = {"OPLOG_TEST_HOLD": str(self._file)}
        self._write("0,none,0,")

    def reach(self, agent: Agent, step: str, call: Callable[[], Answer]) -> Future[Answer]:
        """Call in a thread. Return when the agent has done the step, and waits there."""
        self.expect(step)
        future = self.submit(call)
        self.wait(agent)
        return future

    def expect(self, step: str, *, release: bool = False) -> None:
        """Stop at a step: its name, and how many of them are done. ``release`` the last one."""
        name, _, count = step.partition(":")
        released = self._number if release else ""
        self._number += 1
        self._write(f"{self._number},{name},{count or 1},{released}")

    def wait(self, agent: Agent) -> None:
        agent.wait_log(f"held {self._number}.")

    def submit(self, call: Callable[[], Answer]) -> Future[Answer]:
        return self._pool.submit(call)

    def close(self) -> None:
        self._pool.shutdown()

    def _write(self, text: str) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self._file)


class Crash(NamedTuple):
    """A step of a request, after which the agent dies. ``scope``: of the transaction."""

    scope: str
    request: str
    step: str

    @property
    def name(self) -> str:
        return "-".join((self.scope, self.request, self.step.replace(":", "-").replace(" ", "-")))

    @property
    def is_begun(self) -> bool:
        return self.step != "before begin"

    @property
    def has_begin_record(self) -> bool:
        return self.step not in ("before begin", "begun-row")

    @property
    def is_written(self) -> bool:
        """Whether the second half of the records is written."""
        return self.request in ("commit", "abort") or self.step in ("written", "after write")

    @property
    def is_appended(self) -> bool:
        """Whether the second half is in the topics."""
        return self.is_written or self.step == "appended"

    @property
    def state(self) -> str:
        """The state of the transaction when the agent is dead."""
        if self.request in ("begin", "write") or self.step.startswith("before"):
            return "open"
        if self.request == "abort":
            return "aborted"
        return "committed" if self.step in ("finished", "after commit") else "committing"


def crashes(scope: str, steps: Mapping[str, Iterable[str]]) -> list[Crash]:
    return [Crash(scope, request, step) for request, each in steps.items() for step in each]


_SQLITE = {name: (f"before {name}", f"after {name}") for name in REQUESTS}
_GROUP = {
    "begin": ("begun-row", "begin-record"),
    "write": ("registered", "appended", "written"),
    "commit": (
        *("decided", "commit-record", "marker:1", "marker:2"),
        *("page:1", "page:2", "operations", "finished"),
    ),
    "abort": ("decided", "abort-record", "marker:1", "marker:2", "finished"),
}
_TOPIC = {
    "begin": ("begun-row", "begin-record"),
    "write": ("registered", "written"),
    "commit": ("decided", "commit-record", "finished"),
    "abort": ("decided", "abort-record", "finished"),
}
_FEW = {"write": ("registered",), "commit": ("marker:1", "page:1")}
CRASHES = {
    "sqlite": crashes("group", _SQLITE) + crashes("topic", _SQLITE),
    "mongo-plain": crashes("group", _GROUP) + crashes("topic", _TOPIC),
    "mongo-capped": crashes("group", _FEW),
}


class Work:
    """The transaction of a crash. It has two topics, and the oplog; or one topic."""

    def __init__(self, crash: Crash) -> None:
        self.crash = crash
        self.names = [f"{crash.name}/x", f"{crash.name}/y"]
        self.id = ""
        self.records: list[dict[str, object]] = []
        if crash.scope == "topic":
            del self.names[1]
            self.records = records(self.names[0], *(f"{lsn}" for lsn in range(RECORDS)))
        else:
            for lsn in range(RECORDS):
                made = {"event": "insert", "type": "thing", "id": f"{crash.name}-{lsn}"}
                payload = made if lsn % 3 == 2 else f"{lsn}"
                name = [*self.names, "system/oplog"][lsn % 3]
                self.records.append(record(name, lsn, payload))

    @property
    def commit_log(self) -> str:
        return f"system/_txn.{self.crash.name}" if self.crash.scope == "group" else self.names[0]

    @property
    def lsns_of_operations(self) -> list[int]:
        return [lsn for lsn, each in enumerate(self.records) if each["topic"] == "system/oplog"]

    def lsns(self, name: str) -> list[int]:
        return [lsn for lsn, each in enumerate(self.records) if each["topic"] == name]

    def prepare(self, agent: Agent) -> None:
        """Do what comes before the request that the agent does not survive."""
        for name in self.names:
            Topic(agent, name).create().publish("before")
        if self.crash.request == "begin":
            return
        txn = Txn.begin(agent, **self._begin)
        self.id = txn.id
        assert txn.write(*self.records[: RECORDS // 2])["records"] == RECORDS // 2
        if self.crash.request != "write":
            txn.write(*self.records[RECORDS // 2 :])

    def ask(self, agent: Agent) -> Answer:
        """Send the request that the agent does not survive, or repeat it."""
        txn = Txn(agent, self.id)
        match self.crash.request:
            case "begin":
                return agent.request("POST", "/v1/txns", self._begin)
            case "write":
                return txn.try_write(*self.records[RECORDS // 2 :])
            case "commit":
                return txn.try_commit(RECORDS)
            case _:
                return txn.try_abort()

    def listed(self, agent: Agent) -> list[Any]:
        """Return the transaction as the list shows it: a list ends none. Empty: there is none."""
        listed = ok(agent.request("GET", "/v1/txns?limit=1000")).json
        key, value = next(iter(self._begin.items()))
        return [each for each in listed if each.get(key) == value]

    @property
    def _begin(self) -> dict[str, object]:
        scope = self.crash.scope
        name = self.crash.name if scope == "group" else self.names[0]
        return {scope: name, "timeout_ms": TIMEOUT_MS}


def lost(answer: Future[Answer]) -> None:
    """Demand that a request got no answer: its agent was killed."""
    with pytest.raises((OSError, http.client.HTTPException)):
        answer.result(DEADLINE)


def told(agent: Agent, commit_log: str) -> list[Any]:
    """Return the records of a group's commit log."""
    answer = Topic(agent, commit_log).try_poll()
    return [] if answer.status == 404 else [json.loads(each["payload"]) for each in ok(answer).json]
