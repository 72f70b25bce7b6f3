"""A database, a lease and an agent of a simulation, with faults between them and a relay."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from oplog_relay import (
    Backlog,
    LeaseState,
    LeaseUnavailableError,
    Outbox,
    OutboxError,
    Outcome,
    Purged,
    Row,
    Verdict,
)
from tests.kits.relay.simulation import Process, Simulation

_T = TypeVar("_T")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Faults:
    """How often calls fail, as shares of all calls. ``late``: longest delay of a late call."""

    fail: float = 0.0
    late: float = 0.0
    late_s: float = 3.0
    # Seconds for each way of a call that does not fail.
    fast_s: tuple[float, float] = (0.001, 0.02)


@dataclass
class Tally:
    """Faults that have happened."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


class World:
    """What the relays share. ``judges_on_arrival``: a wrong agent, which judges a fence early."""

    def __init__(self, simulation: Simulation, *, session: float) -> None:
        self.simulation = simulation
        self.faults = Faults()
        self.tally = Tally()
        self.judges_on_arrival = False
        # Each row with the leader id and the number of its mark.
        self.rows: dict[int, tuple[Row, tuple[UUID, int] | None]] = {}
        # Rows that another transaction has locked.
        self.locked: set[int] = set()
        self.log: list[tuple[str, int]] = []
        self.arrived: list[Row] = []
        # Keys that the agent refuses, and whether it refuses everybody.
        self.refused: set[int] = set()
        self.forbids = False
        self.calls: dict[str, int] = {}
        self.requests: list[list[int]] = []
        self._session = session
        self._holder: str | None = None
        self._term = 0
        self._expires = 0.0
        self.note = ""

    # The database

    def commit(self, row: Row) -> None:
        self.rows[row.id] = (row, None)

    def skip(self, id: int) -> None:
        self.rows.pop(id, None)

    def has(self, row: Row) -> bool:
        """Return whether this row is in the outbox, not only one with its id."""
        return row.id in self.rows and self.rows[row.id][0] == row._replace(mark=0)

    def mark(self, leader_id: UUID, limit: int, number: int, passed: Collection[str]) -> list[Row]:
        found: list[Row] = []
        without = {*passed}
        for id, (row, stamp) in sorted(self.rows.items()):
            if row.key in without or (stamp is not None and stamp[0] == leader_id):
                continue
            if id in self.locked:
                without.add(row.key)
            elif len(found) < limit:
                found.append(row._replace(mark=number))
                self.rows[id] = (row, (leader_id, number))
        return found

    def purge(self, leader_id: UUID, rows: Sequence[Row]) -> Purged:
        """As on PostgreSQL, any stamp of these rows will do for each of them."""
        stamps = {(leader_id, row.mark) for row in rows}
        found = {row.id: self.rows[row.id][1] in stamps for row in rows if row.id in self.rows}
        locked = tuple(id for id, is_mine in found.items() if is_mine and id in self.locked)
        for id, is_mine in found.items():
            if is_mine and id not in self.locked:
                del self.rows[id]
        return Purged(locked, changed=sum(not is_mine for is_mine in found.values()))

    def reset(self, leader_id: UUID, rows: Sequence[Row] | None, key: str | None) -> int:
        """Return -1 if a row is locked that must not be left out."""
        stamps = None if rows is None else {(row.id, leader_id, row.mark) for row in rows}
        found = [
            row
            for row, stamp in self.rows.values()
            if stamp is not None
            and stamp[0] == leader_id
            and (stamps is None or (row.id, *stamp) in stamps)
            and (key is None or row.key == key)
        ]
        if any(row.id in self.locked for row in found) and (rows is not None or key is not None):
            return -1
        for row in found:
            if row.id not in self.locked:
                self.rows[row.id] = (row, None)
        return len(found)

    # The agent

    def poll(self, holder: str, refresh: bool, note: str | None) -> LeaseState:
        now = self.simulation.now
        if self._holder is None or now >= self._expires:
            self._holder, self._term = holder, self._term + 1
        elif self._holder == holder:
            self._term += refresh
        if self._holder == holder:
            self._expires = now + self._session
            self.note = self.note if note is None else note
        return LeaseState(self._holder == holder, self._holder, self._term, self._expires - now)

    def release(self, holder: str, term: int) -> None:
        if (self._holder, self._term) == (holder, term):
            self._holder = None

    def holds(self, term: int) -> bool:
        return self._holder is not None and term == self._term

    @property
    def holder(self) -> str | None:
        return self._holder

    def append(self, rows: Sequence[Row], holds: bool) -> Outcome:
        if self.forbids:
            return Outcome(Verdict.FORBIDDEN, "wrong password")
        if not holds:
            return Outcome(Verdict.STALE, "the term is over")
        if any(row.id in self.refused for row in rows):
            return Outcome(Verdict.REFUSED, "no such topic")
        self.log += [(row.key, row.id) for row in rows]
        self.arrived += [row._replace(mark=0) for row in rows]
        self.requests.append([row.id for row in rows])
        return Outcome(Verdict.ACCEPTED)


class Link:
    """The connection of one process with the world. All calls of its bindings go through it."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        # Publishes that wait in the network; None: they do not wait.
        self.held: list[Callable[[], object]] | None = None

    def hold(self) -> None:
        """Keep all publishes in the network until ``release``, whatever their sender does."""
        self.held = []

    def release(self) -> list[object]:
        """Let the publishes arrive. Return the world's answers."""
        held, self.held = self.held or [], None
        return [arrive() for arrive in held]

    async def call(self, name: str, run: Callable[[], _T], seconds: float) -> _T:
        """Run something in the world. Raises ConnectionError if there is no answer in time."""
        world, random = self.world, self.world.simulation.random
        faults, after = world.faults, world.simulation.after
        world.calls[name] = world.calls.get(name, 0) + 1
        answer: asyncio.Future[_T] = self.process.create_future()
        there, back = random.uniform(*faults.fast_s), random.uniform(*faults.fast_s)

        def fail() -> None:
            if not answer.done():
                answer.set_exception(ConnectionError(f"{name}: no answer"))

        def succeed(result: _T) -> None:
            if not answer.done():
                answer.set_result(result)

        def arrive(is_answered: bool) -> _T:
            result = run()
            if is_answered:
                after(back, lambda: succeed(result))
            return result

        if self.held is not None and name == "publish":
            self.held.append(lambda: arrive(True))
            after(seconds, fail)
            return await answer
        draw = random.random()
        if self.process.is_cut or draw < faults.fail:
            kind = random.choice(("unsent", "unanswered", "silent"))
            world.tally.add(f"{name} {kind}")
            if kind != "unsent" and not self.process.is_cut:
                after(there, lambda: arrive(False))
            after(seconds if kind == "silent" else there + back, fail)
        elif draw < faults.fail + faults.late:
            world.tally.add(f"{name} late")
            after(random.uniform(0.0, faults.late_s), lambda: arrive(True))
            after(seconds, fail)
        else:
            after(there, lambda: arrive(True))
        return await answer


class FakeOutbox(Outbox):
    def __init__(self, link: Link) -> None:
        self._link = link
        self._world = link.world
        self.is_disposed = False

    async def mark(
        self, leader_id: UUID, limit: int, number: int = 0, passed: Collection[str] = ()
    ) -> list[Row]:
        run = lambda: self._world.mark(leader_id, limit, number, passed)  # noqa: E731
        return await self._call("mark", run)

    async def purge(self, leader_id: UUID, rows: Sequence[Row]) -> Purged:
        return await self._call("purge", lambda: self._world.purge(leader_id, rows))

    async def reset(
        self, leader_id: UUID, *, rows: Sequence[Row] | None = None, key: str | None = None
    ) -> int:
        reset = await self._call("reset", lambda: self._world.reset(leader_id, rows, key))
        if reset < 0:
            raise OutboxError("a row is locked")
        return reset

    async def backlog(self, at_most: int) -> Backlog:
        return Backlog(min(len(self._world.rows), at_most), 0.0)

    async def dispose(self) -> None:
        self.is_disposed = True

    async def _call(self, name: str, run: Callable[[], _T]) -> _T:
        try:
            return await self._link.call(name, run, 0.4)
        except ConnectionError as error:
            raise OutboxError(str(error)) from error


class FakeLease:
    """``holder``: set it to the relay's name for itself, before the relay starts."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._world = link.world
        self.holder = ""
        self.is_closed = False

    async def poll(
        self, seconds: float, *, refresh: bool = False, note: str | None = None
    ) -> LeaseState:
        run = lambda: self._world.poll(self.holder, refresh, note)  # noqa: E731
        return await self._call("poll", run, seconds)

    async def release(self, seconds: float, term: int) -> None:
        await self._call("release", lambda: self._world.release(self.holder, term), seconds)

    async def close(self) -> None:
        self.is_closed = True

    async def _call(self, name: str, run: Callable[[], _T], seconds: float) -> _T:
        try:
            return await self._link.call(name, run, seconds)
        except ConnectionError as error:
            raise LeaseUnavailableError(str(error)) from error


class FakePublisher:
    """Checks the promises about sending: one row of a key at a time, and new terms."""

    def __init__(self, link: Link, request_timeout: float) -> None:
        self._link = link
        self._world = link.world
        self._timeout = request_timeout
        self._sending: set[str] = set()
        # The row of each key that was accepted last, and the term of the last uncertain answer.
        self._accepted: dict[str, Row] = {}
        self._uncertain_term = 0
        self.is_closed = False
        self.violations: list[str] = []

    async def publish(self, topic: str, rows: Sequence[Row], term: int) -> Outcome:
        keys = {row.key for row in rows}
        if len(keys) < len(rows) or keys & self._sending:
            self.violations.append(f"two rows of a key at a time: {rows}")
        for row in rows:
            last = self._accepted.get(row.key)
            if last is not None and last != row._replace(mark=0) and self._world.has(last):
                self.violations.append(f"{row.id} is sent before {last.id} is purged")
        if term <= self._uncertain_term:
            self.violations.append(f"sent with term {term} after an uncertain answer")
        self._sending |= keys
        try:
            outcome = await self._send(rows, term)
        finally:
            self._sending -= keys
        if outcome.verdict is Verdict.ACCEPTED:
            self._accepted |= {row.key: row._replace(mark=0) for row in rows}
        elif outcome.verdict is Verdict.UNCERTAIN:
            self._uncertain_term = term
        return outcome

    async def _send(self, rows: Sequence[Row], term: int) -> Outcome:
        world = self._world
        holds = False

        def arrive() -> None:
            nonlocal holds
            holds = world.holds(term)

        def append() -> Outcome:
            return world.append(rows, holds if world.judges_on_arrival else world.holds(term))

        world.simulation.after(0.0005, arrive)
        try:
            return await self._link.call("publish", append, self._timeout)
        except ConnectionError as error:
            return Outcome(Verdict.UNCERTAIN, str(error))

    async def close(self) -> None:
        self.is_closed = True
