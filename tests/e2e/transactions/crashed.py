"""What is left of agents that died at the steps of transactions, and the agents that survive."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.e2e.transactions.crashes import TIMEOUT_MS, Crash, Hold, Work, lost
from tests.kits.agents.agent import Agent
from tests.kits.agents.streams import ByteStream
from tests.kits.agents.topics import Topic
from tests.kits.agents.transactions import COMMITTED
from tests.kits.clock.moved import StoreClock
from tests.kits.servers.stores import StorePlace

# Who ends the transactions: the client asks again, or nobody asks and the keeper acts.
ENDERS = ("asked", "keeper")

NO_KEEPER = {"OPLOG_TEST_NO_KEEPER": "1"}

# Longer than any transaction here may take.
LATER_SECONDS = TIMEOUT_MS // 1000 + 10

Works = dict[Crash, Work]


class HeldAgent(Agent):
    program = ("-m", "tests.e2e.held_agent")


class Killed(NamedTuple):
    """A SQLite file without agents. ``start``: of the operations in the oplog."""

    folder: Path
    works: Works
    start: str


class Crashed(NamedTuple):
    """Agents after the crashes. ``streams``: committed readers of the topics."""

    agents: tuple[Agent, Agent]
    works: Works
    streams: dict[str, ByteStream]
    start: str


def kill_on_sqlite(crashes: Sequence[Crash], folder: Path) -> Killed:
    """Kill one agent after another: a request that waits within a step keeps the file locked."""
    works = {crash: Work(crash) for crash in crashes}
    hold = Hold(folder.with_name("hold"))
    start = ""
    for work in works.values():
        hold.expect("nothing")
        environ = {**hold.environ, **NO_KEEPER}
        with StorePlace(folder / "oplog.db").agent(
            folder, make=HeldAgent, environ=environ
        ) as agent:
            start = start or first_operation(agent)
            work.prepare(agent)
            answer = hold.reach(agent, work.crash.step, partial(work.ask, agent))
            agent.kill()
            lost(answer)
    hold.close()
    return Killed(folder, works, start)


@contextmanager
def crashed_on_sqlite(killed: Killed, ender: str, folder: Path) -> Iterator[Crashed]:
    """Start agents on a copy of the file."""
    shutil.copytree(killed.folder, folder)
    place = StorePlace(folder / "oplog.db")
    with ExitStack() as stack:
        one, two = surviving(stack, place, ender, folder, LATER_SECONDS)[0]
        streams = followed(stack, one, killed.works)
        yield Crashed((one, two), deepcopy(killed.works), streams, killed.start)


@contextmanager
def crashed_on_mongo(
    place: StorePlace, ender: str, crashes: Sequence[Crash], folder: Path
) -> Iterator[Crashed]:
    """Kill one agent while a request waits at each of the steps.

    It holds the lease if there is a keeper: then another agent must first become the keeper.
    """
    works = {crash: Work(crash) for crash in crashes}
    hold = Hold(folder / "hold")
    with ExitStack() as stack:

        def doomed() -> Agent:
            return stack.enter_context(place.agent(folder, make=HeldAgent, environ=hold.environ))

        if ender == "keeper":
            agent = doomed()
        (one, two), clock = surviving(stack, place, ender, folder, 0)
        if ender != "keeper":
            agent = doomed()
        start = first_operation(agent)
        for work in works.values():
            work.prepare(agent)
        streams = followed(stack, one, works)
        answers = [
            hold.reach(agent, work.crash.step, partial(work.ask, agent)) for work in works.values()
        ]
        agent.kill()
        for answer in answers:
            lost(answer)
        hold.close()
        clock.move(LATER_SECONDS)  # the dead agent's lease has run out, too
        yield Crashed((one, two), works, streams, start)


def surviving(
    stack: ExitStack, place: StorePlace, ender: str, folder: Path, ahead: float
) -> tuple[tuple[Agent, Agent], StoreClock]:
    """Start two agents. The clock moves them if there is a keeper. ``ahead``: at the start."""
    clock = StoreClock(place, folder)
    clock.set(ahead)

    def started() -> Agent:
        if ender == "keeper":
            return stack.enter_context(clock.agent())
        return stack.enter_context(place.agent(folder, make=HeldAgent, environ=NO_KEEPER))

    return (started(), started()), clock


def first_operation(agent: Agent) -> str:
    """Return the id of an operation that all others come after."""
    with agent.follow() as stream:
        assert agent.post({"event": "insert", "type": "thing", "id": "first"}) == 204
        return stream.take(1)[0].id


def followed(stack: ExitStack, agent: Agent, works: Works) -> dict[str, ByteStream]:
    return {
        name: stack.enter_context(Topic(agent, name).stream("0", isolation=COMMITTED))
        for work in works.values()
        for name in work.names
    }
