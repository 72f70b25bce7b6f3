"""Relays through random kills, stops, cuts, refusals and restarts of agents and the database."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.proxies.http import LEASE, PUBLISH, Fault, HttpProxy
from tests.kits.proxies.postgres import PostgresProxy, StatementFault
from tests.kits.relay.chain import SHORT, Chain
from tests.kits.relay.outbox import OutboxTable
from tests.kits.relay.processes import (
    EMBEDDED,
    STANDALONE,
    RelayProcess,
)
from tests.kits.servers.mongo import RunningMongo, new_database
from tests.kits.servers.postgres import PostgresServer
from tests.kits.servers.stores import SORTS, StorePlace
from tests.soak.conftest import Rounds

ROUND_SECONDS = 60.0
# All sent, not all sent, and terminated before it had begun.
EXITS = (0, 1, -signal.SIGTERM)
LIMITS = {**SHORT, "request_timeout": 1.0, "queue_timeout": 3.0, "drain": 5.0}
MOST_RELAYS = 3
# Once per run a relay stands still for this many seconds.
LONG_STOP = 30.0
Undo = Callable[[], object]
WRITERS = 3
KEYS = 30
WORDS = ("is null or", "delete", "= null", "")


class Member:
    """A relay of the group that is started again after its end, behind proxies of its own."""

    def __init__(self, chain: Chain, agents: Sequence[int], port: int, program: Sequence[str]):
        self.agents = [HttpProxy(agent) for agent in agents]
        self.database = PostgresProxy(port)
        self._chain = chain
        self._port = port
        self._program = program
        self.logged: Counter[str] = Counter()
        self.is_stopped = False

    def start(self) -> None:
        url = self._chain.table.url.replace(f":{self._port}/", f":{self.database.port}/")
        settings = self._chain.settings(
            *(proxy.url for proxy in self.agents),
            database=f"{url}?sslmode=disable&gssencmode=disable",
            limits=LIMITS,
        )
        self.relay = RelayProcess(settings, program=self._program)
        self.is_stopped = False

    def again(self) -> None:
        """Start the relay again after its end."""
        self.relay.wait()
        self.end()
        self.start()

    def kill(self) -> None:
        self.relay.kill()

    def end(self) -> None:
        # A handler of the embedding program always fails.
        failures = self.relay.count("Traceback"), self.relay.count("ValueError: a handler")
        assert failures[0] == failures[1], self.relay.text()
        self.logged += self.relay.counts()


class Chaos:
    """Disturbs the members, the agents and the database. ``done``: how often, by name.

    An action returns the step that ends it, which follows after some seconds.
    """

    def __init__(
        self,
        choose: random.Random,
        members: Sequence[Member],
        agents: list[Agent],
        new_agent: Callable[[int], Agent],
        server: PostgresServer,
    ) -> None:
        self._choose = choose
        self._members = members
        self._agents = agents
        self._new_agent = new_agent
        self._server = server
        self._ends: list[tuple[float, Undo]] = []
        self.done: Counter[str] = Counter()
        self._actions = [
            self.kill, self.kill, self.stop, self.stand_still, self.stand_still, self.cut,
            self.freeze, self.hold, self.lose_answer, self.lose_answer, self.refuse,
            self.lose_statement, self.lose_statement, self.cut_database, self.kill_agent,
            self.restart_database,
        ]  # fmt: skip

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._choose.uniform(0.05, 1.0))
            action = self._choose.choice(self._actions)
            self.begin(action, self._choose.choice([0.2, 0.5, 1.5, 2.5, 4.0]))
            self._end_due(time.monotonic())
        self._end_due(float("inf"))

    def begin(self, action: Callable[[], Undo | None], seconds: float) -> None:
        undo = action()
        self.done[action.__name__.replace("_", " ")] += 1
        if undo is not None:
            self._ends.append((time.monotonic() + seconds, undo))

    def _end_due(self, now: float) -> None:
        for due in [each for each in self._ends if each[0] <= now]:
            self._ends.remove(due)
            due[1]()

    def _member(self) -> Member:
        return self._choose.choice(self._running())

    def _running(self) -> list[Member]:
        """Return the members that were not stopped: at least one."""
        return [each for each in self._members if not each.is_stopped]

    def kill(self) -> None:
        member = self._member()
        member.relay.process.kill()
        member.again()

    def stop(self) -> Undo | None:
        if len(self._running()) == 1:
            return None
        member = self._member()
        member.is_stopped = True
        member.relay.process.terminate()

        def undo() -> None:
            assert member.relay.wait() in EXITS
            member.again()

        return undo

    def stand_still(self) -> Undo | None:
        if len(self._running()) == 1:
            return None
        member = self._member()
        member.is_stopped = True
        member.relay.freeze()

        def undo() -> None:
            member.relay.thaw()
            member.is_stopped = False

        return undo

    def cut(self) -> Undo:
        proxies = self._member().agents
        for_all(HttpProxy.disconnect, proxies)
        return partial(for_all, HttpProxy.mend, proxies)

    def freeze(self) -> Undo:
        proxies = self._member().agents
        for_all(HttpProxy.freeze, proxies)
        return partial(for_all, HttpProxy.thaw, proxies)

    def hold(self) -> Undo:
        proxy = self._choose.choice(self._member().agents)
        held = proxy.disturb(Fault.HOLD)
        return partial(proxy.end, held)

    def lose_answer(self) -> Undo:
        proxy = self._choose.choice(self._member().agents)
        path = self._choose.choice([PUBLISH, PUBLISH, LEASE])
        lost = proxy.disturb(Fault.LOSE_ANSWER, path)
        return partial(proxy.end, lost)

    def refuse(self) -> Undo:
        proxy = self._choose.choice(self._member().agents)
        refused = proxy.disturb(Fault.UNAVAILABLE, "/", times=1_000_000)
        return partial(proxy.end, refused)

    def lose_statement(self) -> None:
        fault = self._choose.choice([*StatementFault])
        self._member().database.disturb(fault, *self._choose.choices(WORDS, k=2))

    def cut_database(self) -> Undo:
        proxy = self._member().database
        proxy.disconnect()
        return proxy.mend

    def kill_agent(self) -> None:
        number = self._choose.randrange(len(self._agents))
        self._agents[number].kill()
        self._agents[number] = self._new_agent(number)
        for member in self._members:
            for at, proxy in enumerate(member.agents):
                if at % len(self._agents) == number:
                    proxy.target = self._agents[number].port

    def restart_database(self) -> None:
        self._server.restart()


def for_all(change: Callable[[HttpProxy], None], proxies: Sequence[HttpProxy]) -> None:
    for proxy in proxies:
        change(proxy)


@contextmanager
def agents_on(
    sort: str, folder: Path, java: RunningMongo
) -> Iterator[tuple[list[Agent], Callable[[int], Agent]]]:
    """Yield agents on a new store, one on SQLite or two on MongoDB, and a way to replace one."""
    if sort == "sqlite":
        place = StorePlace(folder / "oplog.db")
    else:
        place = StorePlace(new_database(java.url), SORTS[sort].kind).create()
    with ExitStack() as stack:

        def new_agent(_: int) -> Agent:
            return stack.enter_context(place.agent(folder))

        yield [new_agent(number) for number in range(1 if sort == "sqlite" else 2)], new_agent


@pytest.mark.postgres
def test_rows_arrive_in_order_through_random_failures(
    tmp_path: Path, rounds: Rounds, java: RunningMongo
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    choose = random.Random(seed)
    total: Counter[str] = Counter()
    with PostgresServer() as server:
        for number in rounds():
            folder = tmp_path / str(number)
            folder.mkdir()
            sort = ("sqlite", "mongo-plain")[number % 2]
            with agents_on(sort, folder, java) as (agents, new_agent):
                table = OutboxTable(server.new_database())
                chain = Chain(f"round{number}", agents, table, folder)
                total += one_round(chain, choose, agents, new_agent, server, long=number == 1)
            print(f"{sort}: " + ", ".join(f"{name} {n}" for name, n in sorted(total.items())))


def one_round(
    chain: Chain,
    choose: random.Random,
    agents: list[Agent],
    new_agent: Callable[[int], Agent],
    server: PostgresServer,
    long: bool,
) -> Counter[str]:
    # Two proxies for each relay, also before a single agent.
    ports = [agents[at % len(agents)].port for at in range(2)]
    with ExitStack() as stack:
        members = []
        for number in range(choose.randint(2, MOST_RELAYS)):
            program = EMBEDDED if number % 2 else STANDALONE
            member = Member(chain, ports, server.port, program)
            for proxy in (*member.agents, member.database):
                stack.enter_context(proxy)
            member.start()
            stack.callback(Member.kill, member)
            members.append(member)
        writers = [chain.write(KEYS, seed, pause=0.01) for seed in range(WRITERS)]
        chaos = Chaos(choose, members, agents, new_agent, server)
        if long:
            chaos.begin(chaos.stand_still, LONG_STOP)
        chaos.run(ROUND_SECONDS)
        for writer in writers:
            writer.stop()
        duplicates = chain.check()
        found = chaos.done
        for member in members:
            assert member.relay.stop() in EXITS
            member.end()
            found += member.logged
            found["refused with 412"] += sum(proxy.statuses[412] for proxy in member.agents)
        assert chain.check() == duplicates
    rows = sum(writer.rows for writer in writers)
    rolled_back = sum(writer.rolled_back for writer in writers)
    assert rows > 1_000
    found.update(
        {
            "rows": rows,
            "rolled back": rolled_back,
            "duplicates": duplicates,
            "terms": chain.lease()["term"],
        }
    )
    return found
