"""The figures of the agent: a nested mapping, of which /status and /metrics show members.

Any worker answers for all workers. Counters are in shared memory. Gauges are told by each worker.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from oplogd import __version__
from oplogd.agent import Agent
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import format_id
from oplogd.store import StoreStats
from oplogd.stream.follower import Pace
from oplogd.stream.lags import shown_names
from oplogd.web.figures import combine
from oplogd.web.figures.counted import (
    by_worker,
    histogram_members,
    ingest_members,
    refusal_members,
    total,
    worker_members,
)
from oplogd.web.figures.positions import PositionFigures
from oplogd.web.figures.question import DecidedFigures, Question
from oplogd.web.figures.rounds import Rounds
from oplogd.web.figures.topics import TopicFigures, by_topic
from oplogd.web.figures.worker import Told, WorkerFigures
from oplogd.workers.tallies import Tallies

_QUESTION = "figures"

_Members = dict[str, Any]
_decode = msgspec.msgpack.Decoder(Told).decode


class Shown(Enum):
    """The part of the figures that a client gets.

    ``ALL``: also the consumers. ``PUBLIC``: no addresses. ``BARE``: nor any name or sentence.
    """

    ALL = auto()
    PUBLIC = auto()
    BARE = auto()


class Report(NamedTuple):
    """``members``: of /status for all clients. ``told``: by number, without silent workers.

    ``is_store_up``: False while a part of a worker or the store has a trouble.
    """

    members: _Members
    told: dict[int, Told]
    tallies: list[Tallies]
    is_store_up: bool


class StatusReport:
    """Collects figures from all parts of the agent. They contain no setting, so no secret.

    Messages never name the folders of ``private_files``.
    """

    def __init__(
        self,
        agent: Agent,
        private_files: Collection[Path | None],
        credential_errors: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``credential_errors``: a sentence for each file of credentials that is not in order."""
        store = agent.store
        self._credential_errors = credential_errors
        self._agent = agent
        self._workers = agent.worker.workers
        self._location = Question(store.locate)
        self._store_stats = Question(store.stats)
        self._own = WorkerFigures(agent, private_files)
        self._topics = TopicFigures(store.topics)
        self._positions = PositionFigures(agent.consumers, agent.clock)
        self._transactions = DecidedFigures(
            store.transactions, "transactions", "oldest_open_seconds", agent.clock
        )
        self._pointers = DecidedFigures(store.pointers, "pointers", "oldest_seconds", agent.clock)
        self._public = Rounds(lambda: self._ask(b""))
        self._private = Rounds(lambda: self._ask(b"private"))
        agent.inbox.answer(_QUESTION, self._own.answer)

    async def trouble(self) -> str | None:
        """Return why the store or a part of this worker does not work, None if all do."""
        try:
            await self._location.answer()
        except StoreUnavailableError as error:
            return str(error)
        return self._agent.health.trouble

    async def members(self, shown: Shown) -> _Members:
        """Return the members of /status."""
        report = await self._report(private=shown is Shown.ALL)
        if shown is Shown.BARE:
            return without_names(report.members)
        if shown is Shown.PUBLIC:
            return report.members
        errors = {"credential_errors": [*self._credential_errors()]}
        return report.members | errors | combine.private_members(report.told, many=self._is_many)

    async def figures(self, shown: Shown) -> _Members:
        """Return the members of /status for all clients, and the members only of /metrics."""
        found = await self._figures()
        return without_names(found) if shown is Shown.BARE else found

    async def _figures(self) -> _Members:
        members, told, _, is_store_up = await self._report(private=False)
        decided = ("committed", "aborted", "timed_out")
        names, left_out = shown_names(combine.combined_names([*told.values()]))
        return members | {
            "pointer_decisions": {name: members["pointers"][name] for name in decided},
            "named_consumers": {name: each.consumers for name, each in names.items()},
            "named_consumer_lag": {
                "operations": {name: each.lag.operations for name, each in names.items()},
                "seconds": {name: each.lag.seconds for name, each in names.items()},
            },
            "consumer_names_left_out": left_out,
            "position": self._positions.by_shard(),
            "topic": by_topic(
                self._agent.topics.counters,
                self._workers.pages,
                combine.combined_streams([*told.values()]),
            ),
            **({"worker": by_worker(members["workers"])} if self._is_many else {}),
            "credential_files_broken": len(self._credential_errors()),
            "store_up": is_store_up,
            "info": {(__version__, members["store"]["kind"]): 1},
        }

    @property
    def _is_many(self) -> bool:
        return self._workers.count > 1

    async def _ask(self, question: bytes) -> dict[int, Told]:
        """Return what the other workers tell, without silent ones."""
        worker = self._agent.worker
        answers = await self._agent.inbox.ask(_QUESTION, question, worker.alive_others)
        pace, told = Pace(), {}
        for number, answer in answers.items():
            told[number] = _decode(answer)
            await pace.rest()
        return told

    async def _report(self, *, private: bool) -> Report:
        others, store, *parts = await asyncio.gather(
            (self._private if private else self._public)() if self._is_many else _nothing(),
            self._stats(),
            self._topics.members(),
            self._transactions.members(),
            self._pointers.members(),
            self._positions.members(),
        )
        own = await self._own.tell(private=private)
        return self._combined(others | {self._agent.worker.number: own}, store, parts)

    def _combined(
        self, found: dict[int, Told], stats: StoreStats | str, parts: list[_Members]
    ) -> Report:
        """``stats``: a sentence if the store does not answer. All figures are of one moment."""
        workers, agent = self._workers, self._agent
        told = dict(sorted(found.items()))
        every = [
            Tallies.from_buffer_copy(told[n].tallies) if n in told else workers.tallies[n]
            for n in range(workers.count)
        ]
        all_ = total(every)
        gauges = combine.combined([each.gauges for each in told.values()])
        topics, transactions, pointers, positions = parts
        troubles = combine.combined_troubles(told)
        if isinstance(stats, str):
            troubles = [stats, *(each for each in troubles if each != stats)]
        silent = [n for n in range(workers.count) if n not in told]
        reasons = [*troubles, *(f"worker {n} does not answer" for n in silent)]
        started = workers.started if self._is_many else agent.started
        members = {
            "status": "DEGRADED" if reasons else "OK",
            **({"reason": "; ".join(reasons)} if reasons else {}),
            "version": __version__,
            "uptime_seconds": round(agent.clock.monotonic() - started, 1),
            **ingest_members(all_),
            **{name: gauges[name] for name in _QUEUE},
            "spool": {"operations": all_.ingest.in_spool, **gauges["spool"]},
            "events_sent": all_.streams.events_sent,
            "clients": gauges["clients"],
            "held_consumers": gauges["held_consumers"],
            "connections": all_.streams.connections,
            "consumer_lag": gauges["consumer_lag"],
            "consumers_refused": all_.consumers_refused.members(),
            "fallbacks": {"store": all_.streams.to_store, "states": all_.streams.to_states},
            "ring": gauges["ring"],
            **refusal_members(all_),
            "descriptors": gauges["descriptors"],
            "commit_seconds": histogram_members(all_.ingest.commit_seconds),
            **self._wait_members(all_),
            "ingest_to_send_seconds": histogram_members(all_.latency),
            "loop": {
                "cpu_seconds": round(all_.loop.cpu_seconds, 3),
                "longest_turn_seconds": round(all_.loop.longest_turn_seconds, 4),
                "longest_turn_seconds_last_minute": gauges["longest_turn_seconds_last_minute"],
            },
            "rates": gauges["rates"],
            "store": self._store_members(stats, told),
            **self._disk_members(told),
            "clock": combine.combined_clock([each.clock for each in told.values()]),
            "topics": topics | all_.topics.members() | gauges["topics"],
            "transactions": transactions | all_.transactions.members(),
            "pointers": pointers | all_.pointers.members(),
            "leases": {
                "held": len({name for each in told.values() for name in each.leases}),
                **all_.leases.members(),
            },
            "positions": positions,
        }
        if self._is_many:
            members["workers"] = [
                worker_members(workers, n, tallies, told.get(n)) for n, tallies in enumerate(every)
            ]
        return Report(members, told, every, not troubles)

    def _wait_members(self, all_: Tallies) -> _Members:
        is_shared = self._is_many and self._agent.store.kind == "sqlite"
        return {"write_wait_seconds": histogram_members(all_.write_waits)} if is_shared else {}

    async def _stats(self) -> StoreStats | str:
        """Return the figures of the store, or a sentence if it does not answer."""
        try:
            return await self._store_stats.answer()
        except StoreUnavailableError as error:
            return self._own.redacted(str(error))

    def _store_members(self, stats: StoreStats | str, told: dict[int, Told]) -> _Members:
        """Return the member ``store``.

        If the store does not answer, it has only its kind and its identity, if known.
        """
        store = self._agent.store
        members = {
            "kind": store.kind,
            **({"identity": store.identity} if store.identity else {}),
        }
        if isinstance(stats, str):
            return members
        clocks = (warning for each in told.values() for warning in each.clock_warnings)
        warnings = [*dict.fromkeys((*map(self._own.redacted, stats.warnings), *clocks))]
        head = min(each.head for each in told.values())
        newest = stats.newest.offset if stats.newest else head
        return members | {
            "ops": stats.operations,
            "states": stats.states,
            "live": None if stats.deleted is None else stats.states - stats.deleted,
            "deleted": stats.deleted,
            "bytes": stats.bytes,
            "max_bytes": stats.max_bytes,
            **({} if stats.wal_bytes is None else {"wal_bytes": stats.wal_bytes}),
            "oldest_id": format_id(stats.oldest) if stats.oldest else None,
            "newest_id": format_id(stats.newest) if stats.newest else None,
            **({"warnings": warnings} if warnings else {}),
            "lag": {"fold": stats.lag, "follower": max(0, newest - head)},
        }

    def _disk_members(self, told: dict[int, Told]) -> _Members:
        disk = self._agent.gate.members()
        if disk is None:
            return {}
        stopped = any(each.intake_stopped for each in told.values())
        return {"disk": disk | {"intake_stopped": stopped}}


_WITH_NAMES = ("reason", "named_consumers", "named_consumer_lag", "position", "topic")
_QUEUE = ("queue_size", "queue_max_size", "queue_bytes", "queue_max_bytes")


def without_names(members: _Members) -> _Members:
    """Return figures without names of topics and consumers, and without sentences."""
    bare = {name: value for name, value in members.items() if name not in _WITH_NAMES}
    return bare | {"store": {k: v for k, v in members["store"].items() if k != "warnings"}}


async def _nothing() -> dict[int, Told]:
    return {}
