"""The metrics of a relay, with bindings in memory that fail as told."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from prometheus_client import generate_latest

from oplog_relay import (
    Backlog,
    DatabaseSettings,
    Event,
    LeaderRefreshed,
    LeaseState,
    LeaseUnavailableError,
    Limits,
    MeasurableOutbox,
    MeterRead,
    OutboxError,
    Outcome,
    Purged,
    Relay,
    RelaySettings,
    Row,
    State,
    Verdict,
)
from oplog_relay.model.bindings import Bindings
from oplog_relay.watch.metrics import Metrics
from tests.kits.processes.logged import DEADLINE

LIMITS = Limits(
    poll=0.001, io_error_backoff=0.001, mark_backoff=0.001, blocked_backoff=(3600, 3600),
    meter=0.01, heartbeat=3600, session=7200,
)  # fmt: skip
SETTINGS = RelaySettings("orders", DatabaseSettings("sqlite:///unused"), limits=LIMITS)


class Table:
    """An outbox in memory. ``failing``: calls that fail once."""

    def __init__(self, rows: int, *failing: str) -> None:
        now = datetime.now(UTC)
        self.rows = [Row(id, now, "t", f"key-{id}", "v") for id in range(1, rows + 1)]
        self.marked: set[int] = set()
        self.failing = list(failing)
        self.empty = asyncio.Event()

    def _fail(self, call: str) -> None:
        if call in self.failing:
            self.failing.remove(call)
            raise OutboxError(f"{call} fails")

    async def mark(
        self, leader_id: UUID, limit: int, number: int = 0, passed: Collection[str] = ()
    ) -> list[Row]:
        self._fail("mark")
        found = [row for row in self.rows if row.id not in self.marked][:limit]
        self.marked.update(row.id for row in found)
        return found

    async def purge(self, leader_id: UUID, rows: Sequence[Row]) -> Purged:
        self._fail("purge")
        self.rows = [row for row in self.rows if row not in rows]
        if not self.rows:
            self.empty.set()
        return Purged()

    async def reset(
        self, leader_id: UUID, *, rows: Sequence[Row] | None = None, key: str | None = None
    ) -> int:
        self.marked.clear()
        return 0

    async def dispose(self) -> None:
        pass


class CountedTable(Table):
    async def backlog(self, at_most: int) -> Backlog:
        return Backlog(len(self.rows), 7.5)


class Lease:
    """A lease that nobody else wants. ``failing``: polls that fail first."""

    def __init__(self, failing: int = 0) -> None:
        self.failing = failing
        self.term = 0

    async def poll(
        self, seconds: float, *, refresh: bool = False, note: str | None = None
    ) -> LeaseState:
        if self.failing:
            self.failing -= 1
            raise LeaseUnavailableError("away")
        self.term += refresh or not self.term
        return LeaseState(True, "me", self.term, 10.0)

    async def release(self, seconds: float, term: int) -> None:
        pass

    async def close(self) -> None:
        pass


class Agent:
    """Gives these answers, then accepts. ``held``: it answers once ``go`` is set."""

    def __init__(self, *answers: Verdict, held: bool = False) -> None:
        self.answers = list(answers)
        self.held = held
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def publish(self, topic: str, rows: Sequence[Row], term: int) -> Outcome:
        self.asked.set()
        if self.held:
            await self.go.wait()
        return Outcome(self.answers.pop(0) if self.answers else Verdict.ACCEPTED, "as told")

    async def close(self) -> None:
        pass


class Ran(NamedTuple):
    """A relay with its metrics, and a reading of them while it led."""

    relay: Relay
    metrics: Metrics

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"oplog_relay_{name}", {"lease": "orders", **labels}
        )


def relay_of(table: Table, lease: Lease, agent: Agent, drain: float = 0.01) -> Ran:
    metrics = Metrics(SETTINGS)
    settings = replace(SETTINGS, limits=replace(LIMITS, drain=drain))
    relay = Relay(settings, outbox=table, lease=lease, publisher=agent, wrap=metrics.measured)
    metrics.watch(relay)
    return Ran(relay, metrics)


async def test_rows_calls_and_polls_are_counted() -> None:
    table, lease = Table(250), Lease(failing=2)
    ran = relay_of(table, lease, agent := Agent())
    async with ran.relay:
        await table.empty.wait()
        assert ran.value("is_leader") == 1
        assert ran.value("term") == 1
    assert agent.asked.is_set()
    assert ran.value("rows_relayed_total") == 250
    assert ran.value("rows_marked_total") == 250
    assert ran.value("marks_total") == ran.relay.counters.marks
    assert ran.value("publish_seconds_count") == ran.relay.counters.requests
    assert ran.value("purge_seconds_count") == ran.relay.counters.purges
    assert (ran.value("mark_seconds_count") or 0) >= ran.relay.counters.marks
    assert ran.value("lease_polls_total", result="failed") == 2
    assert (ran.value("lease_polls_total", result="leader") or 0) >= 1
    assert ran.value("lease_polls_total", result="waiting") == 0
    assert ran.value("leads_acquired_total") == 1
    assert ran.value("is_leader") == 0
    assert ran.value("in_flight") == 0


async def test_a_new_term_is_counted_by_the_call_that_failed() -> None:
    table = Table(1, "mark", "purge", "purge")  # the purge is tried again at the term's end
    ran = relay_of(table, Lease(), Agent(Verdict.UNCERTAIN))
    reasons: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, LeaderRefreshed):
            reasons.append(event.reason)

    ran.relay.on_event(note)
    async with ran.relay:
        await table.empty.wait()
        assert ran.value("term") == 4
    assert reasons == ["mark failed: mark fails", "as told", "purge failed: purge fails"]
    for call, failures in (("mark", 1), ("publish", 1), ("purge", 2)):
        assert ran.value("refreshes_total", reason=call) == 1
        assert ran.value("failures_total", call=call) == failures
    assert ran.value("failures_total", call="reset") == 0
    assert ran.value("refreshes_total", reason="other") is None


async def test_refusals_and_blocked_keys_are_counted() -> None:
    table = Table(1)
    ran = relay_of(table, Lease(), Agent(Verdict.FORBIDDEN, Verdict.REFUSED))
    blocked = asyncio.Event()

    def note(event: Event) -> None:
        if isinstance(event, MeterRead) and event.blocked:
            blocked.set()

    ran.relay.on_event(note)
    async with ran.relay:
        await blocked.wait()
        assert ran.value("blocked_keys") == 1
        assert ran.value("rows_refused_total") == 1
        assert ran.value("forbidden_total") == 1
        assert ran.value("in_flight_keys") == 0


async def test_the_backlog_is_told_by_the_leader_only() -> None:
    ran = relay_of(CountedTable(1), Lease(), Agent(held=True))
    read = asyncio.Event()
    ran.relay.on_event(lambda event: read.set() if isinstance(event, MeterRead) else None)
    assert ran.value("backlog_rows") is None
    assert b"backlog_rows" not in generate_latest(ran.metrics.registry)
    async with ran.relay:
        await read.wait()
        assert ran.value("backlog_rows") == 1
        assert ran.value("oldest_row_seconds") == 7.5
    assert ran.value("backlog_rows") is None
    assert ran.value("oldest_row_seconds") is None


def test_a_table_is_measurable_behind_the_metrics_if_it_is_so_itself() -> None:
    metrics = Metrics(SETTINGS)
    for table, expected in ((CountedTable(0), True), (Table(0), False)):
        wrapped = metrics.measured(Bindings(table, Lease(), Agent())).outbox
        assert isinstance(wrapped, MeasurableOutbox) is expected


async def test_a_stop_tells_of_rows_that_may_have_arrived() -> None:
    ran = relay_of(Table(5), Lease(), agent := Agent(held=True))
    async with ran.relay:
        await agent.asked.wait()
        assert ran.relay.unfinished == 0
    assert ran.relay.unfinished > 0


async def test_a_stop_that_purges_at_its_end_leaves_nothing() -> None:
    table = Table(1)
    ran = relay_of(table, Lease(), agent := Agent(held=True), drain=DEADLINE)
    await ran.relay.start()
    await agent.asked.wait()
    stopping = asyncio.create_task(ran.relay.stop())
    while ran.relay.state is not State.STOPPING:
        await asyncio.sleep(0)
    agent.go.set()
    await stopping
    assert table.rows == []
    assert ran.relay.unfinished == 0


async def test_a_refused_row_is_not_unfinished() -> None:
    ran = relay_of(Table(1), Lease(), agent := Agent(Verdict.REFUSED))
    async with ran.relay:
        await agent.asked.wait()
    assert ran.relay.unfinished == 0
