"""An agent dies at each step of a call under a pointer; another agent, or the keeper, completes it.

Everything is seen from outside. The agent dies once, while a request waits at each of the steps.
SQLite does a call in one step: see test_sqlite_pointer_kills.py.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.pointers.pointers import Pointer, entries, read_committed
from tests.e2e.transactions.crashed import LATER_SECONDS, NO_KEEPER, HeldAgent
from tests.e2e.transactions.crashes import Hold, lost
from tests.kits.agents.agent import Agent, Answer
from tests.kits.agents.streams import ByteStream
from tests.kits.agents.topics import Topic, ok, received
from tests.kits.agents.transactions import COMMITTED
from tests.kits.clock.moved import StoreClock
from tests.kits.mongo.agents import wait_for
from tests.kits.servers.stores import StorePlace

STEPS = {
    "publish": ("registered", "appended"),
    "store": ("registered", "looked-up", "stored"),
    "publish-stored": ("registered", "looked-up", "appended"),
    "rollback": ("rollback-noted", "claimed", "dropped", "voided", "void-entry"),
    "commit": ("recorded", "decision:1", "decision:2", "dropped:1", "dropped:2"),
    "abort": ("recorded", "decision:1", "decision:2", "dropped:1", "dropped:2"),
}
TIMEOUT = ("--pointer-timeout", "60s")


class Killed(NamedTuple):
    """A request that its agent did not survive, in two topics that nothing else uses.

    ``streams``: committed readers of both, at another agent.
    """

    request: str
    step: str
    topics: tuple[Topic, Topic]
    streams: tuple[ByteStream, ByteStream]

    @property
    def pointers(self) -> tuple[Pointer, Pointer]:
        x, y = self.topics
        return Pointer(x.agent, x), Pointer(y.agent, y)

    def prepare(self, agent: Agent) -> None:
        """Do what comes before the request."""
        for topic in self.topics:
            Topic(agent, topic.name).publish("before")
        for each in self.pointers:
            pointer = each.at(agent)
            match self.request:
                case "publish-stored":
                    pointer.store("a", "b")
                case "rollback":
                    pointer.publish("a")
                    pointer.store("b")
                    pointer.publish()
                    pointer.store("c")
                case "commit" | "abort":
                    pointer.publish("a")
                    pointer.store("c")

    def ask(self, agent: Agent) -> Answer:
        """Send the request that the agent does not survive, or repeat it."""
        pointer = self.pointers[0].at(agent)
        match self.request:
            case "publish" | "store":
                return pointer.ask(self.request, messages=["a"])
            case "publish-stored":
                return pointer.ask("publish")
            case "rollback":
                return pointer.ask("rollback")
            case _:
                return pointer.report(self.request, self.topics[1])

    def check(self, number: int, committed: list[str], uncommitted: list[str] | None) -> None:
        """Demand these messages of all readers of a topic, before a plain one.

        ``uncommitted``: None if the pointer was aborted. They are there until the sweep.
        """
        stream, topic = self.streams[number], self.topics[number]
        expected = ["before", *committed, "after"]
        assert [each.payload for each in received(stream.take(len(expected)))] == expected, self
        page = read_committed(topic)
        assert (page.payloads, page.held_by) == (expected, None)
        if uncommitted is not None:
            topic.wait_for_payloads("before", *uncommitted, "after")
            with topic.stream("0") as late:  # from memory, where the store may know better
                seen = received(late.take(2 + len(uncommitted)))
                assert [each.payload for each in seen] == ["before", *uncommitted, "after"], self


on_mongo = pytest.mark.parametrize("place", ["mongo-plain"], indirect=True)


def killed_at_each_step(
    stack: ExitStack, dying: Agent, other: Agent, hold: Hold
) -> Iterator[Killed]:
    """Let a request wait at each step, then kill the agent."""
    found: list[Killed] = []
    answers = []
    for request, steps in STEPS.items():
        for step in steps:
            name = f"{request}/{step.replace(':', '-')}"
            x, y = Topic(other, f"{name}-x"), Topic(other, f"{name}-y")
            for topic in (x, y):
                Topic(dying, topic.name).create()
            streams = [
                stack.enter_context(each.stream("0", isolation=COMMITTED)) for each in (x, y)
            ]
            killed = Killed(request, step, (x, y), (streams[0], streams[1]))
            killed.prepare(dying)
            answers.append(hold.reach(dying, step, partial(killed.ask, dying)))
            found.append(killed)
    dying.kill()
    for answer in answers:
        lost(answer)
    yield from found


@on_mongo
def test_a_request_whose_agent_dies_at_any_step_is_completed_by_a_repeated_one(
    place: StorePlace, tmp_path: Path
) -> None:
    hold = Hold(tmp_path / "hold")
    with ExitStack() as stack:
        one, two, dying = [
            stack.enter_context(place.agent(tmp_path, make=HeldAgent, environ=environ))
            for environ in (NO_KEEPER, NO_KEEPER, {**hold.environ, **NO_KEEPER})
        ]
        for killed in killed_at_each_step(stack, dying, two, hold):
            repeat(killed, one)
        hold.close()


def repeat(killed: Killed, agent: Agent) -> None:
    """Repeat a request at an agent, end its pointer, and check all readers at the other one."""
    request, step = killed.request, killed.step
    first, second = [each.at(agent) for each in killed.pointers]
    is_done = step in ("appended", "stored")
    if request in ("commit", "abort"):
        opposite = "abort" if request == "commit" else "commit"
        assert first.report(opposite).status == 409, killed
        for pointer in (first, second):
            is_open = step == "recorded" or (pointer is second and step == "decision:1")
            if not is_open:
                assert pointer.ask("publish", messages=["late"]).status == 409, killed
    answer = ok(killed.ask(agent))
    seen: list[list[str]] = [[], []]
    match request:
        case "publish":  # at least once
            seen[0] = ["a"] * (1 + is_done)
            first.commit()
        case "store":
            first.publish()
            seen[0] = ["a"] * (1 + is_done)
            first.commit()
        case "publish-stored":  # once, at one place
            assert first.publish() == killed.pointers[0].publish() == answer.json
            shown = entries(first.topic)
            assert [each["kind"] for each in shown] == ["message", "publish"]
            seen[0] = ["a", "b"]
            second.publish()
            seen[1] = ["a", "b"]
            assert ok(first.report("commit", second.topic)).json["state"] == "committed"
        case "rollback":
            ok(killed.ask(agent))
            second.rollback()
            nothing = first.ask("publish")
            assert (nothing.status, "none is stored" in nothing.json["detail"]) == (400, True)
            assert ok(first.report("abort", second.topic)).json["state"] == "aborted"
        case "commit":
            assert ok(killed.ask(agent)).json == answer.json
            seen = [["a"], ["a"]]
        case "abort":
            assert ok(killed.ask(agent)).json == answer.json
    for number, topic in enumerate(killed.topics):
        Topic(agent, topic.name).publish("after")
        killed.check(number, seen[number], None if request == "abort" else seen[number])
        assert ok(agent.request("GET", f"{topic.path}/pointers")).json == [], killed
        ends = [each["kind"] for each in entries(topic) if each["kind"] in ("commit", "abort")]
        assert len(ends) == (number == 0 or request not in ("publish", "store")), killed


@on_mongo
def test_the_keeper_ends_what_an_agent_that_died_has_left(
    place: StorePlace, tmp_path: Path
) -> None:
    """The agent that dies was the keeper: another one must first become it."""
    hold, clock = Hold(tmp_path / "hold"), StoreClock(place, tmp_path)
    with ExitStack() as stack:
        environ = {**hold.environ, **NO_KEEPER}
        dying = stack.enter_context(
            place.agent(tmp_path, *TIMEOUT, make=HeldAgent, environ=environ)
        )
        one, two = [stack.enter_context(clock.agent(*TIMEOUT)) for _ in range(2)]
        every = list(killed_at_each_step(stack, dying, two, hold))
        hold.close()
        for killed in every:
            for topic in killed.topics:
                Topic(one, topic.name).publish("after")
        clock.move(LATER_SECONDS)
        wait_for(
            "the end of all pointers",
            lambda: one.status()["pointers"]["open"] == 0,
        )
        for killed in every:
            check_kept(killed, one)


def check_kept(killed: Killed, agent: Agent) -> None:
    request, step = killed.request, killed.step
    committed: list[list[str]] = [[], []]
    uncommitted: list[list[str]] = [[], []]
    states = ["timed out", "timed out"]
    match request:
        case "publish" | "store":
            uncommitted[0] = ["a"] * (step == "appended")
            del states[1]
        case "publish-stored":
            uncommitted[0] = ["a", "b"] * (step == "appended")
        case "rollback":
            uncommitted[1] = ["a", "b"]
        case _:
            uncommitted = [["a"], ["a"]]
            states = [{"commit": "committed", "abort": "aborted"}[request]] * 2
            committed = [["a"] if each == "committed" else [] for each in states]
    for number in (0, 1):
        is_aborted = states[number : number + 1] == ["aborted"]
        killed.check(number, committed[number], None if is_aborted else uncommitted[number])
        topic = killed.topics[number]
        assert ok(agent.request("GET", f"{topic.path}/pointers")).json == []
        shown = {each["state"] for each in entries(topic) if "pointer" in each}
        assert shown == {*states[number : number + 1]}, (killed, number)
        if number < len(states):
            pointer = killed.pointers[number].at(agent)
            for action in ("publish", "store"):
                assert pointer.ask(action, messages=["late"]).status == 409
