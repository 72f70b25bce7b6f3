"""A random schedule: two relays of one group, a service that commits rows, and faults."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random

from oplog_relay import Row
from tests.kits.relay.running import LIMITS, Node
from tests.kits.relay.simulation import Simulation
from tests.kits.relay.world import NOON, Faults, World

_KEYS = "abcde"
# One key may have most of the rows.
_DRAWN = (_KEYS, "aaaaaaaaaaaab")
_SIZES = (
    LIMITS,
    replace(LIMITS, in_flight=4, batch=1, shards=1),
    replace(LIMITS, in_flight=100, mark=50, batch=50, shards=4),
)
_DISTURBANCES = (
    *("freeze", "freeze", "cut", "kill", "stop", "forbid", "none"),
    *("empty", "empty", "empty and kill", "lock", "lock"),
)
_BUSY_S = 6.0
_QUIET_S = 60.0


class Schedule:
    """Runs one schedule. ``problems`` of the result is empty if all promises were kept."""

    def __init__(self, seed: int, *, judges_on_arrival: bool = False) -> None:
        self._random = Random(seed)
        self.simulation = Simulation(self._random)
        self.world = World(self.simulation, session=LIMITS.session)
        self.world.judges_on_arrival = judges_on_arrival
        self.limits = self._random.choice(_SIZES)
        self.nodes = [Node(self.world, self.limits), Node(self.world, self.limits)]
        self.all_nodes = [*self.nodes]
        self.problems: list[str] = []
        self._drawn = self._random.choice(_DRAWN)
        self._ids = itertools.count(1)
        # Ids may be used again, so the value of a row is its number.
        self._numbers = itertools.count(1)
        # Numbers of each key in the order of their commits.
        self.committed: dict[str, list[str]] = {key: [] for key in _KEYS}
        # Numbers of rows that were deleted, and may have arrived before.
        self._deleted: set[str] = set()
        # Keys with an open transaction: a service locks the object that it changes.
        self._locked: set[str] = set()
        self._is_busy = True

    def run(self) -> list[str]:
        random = self._random
        self.world.faults = Faults(random.choice((0.0, 0.02, 0.1)), random.choice((0.0, 0.05, 0.2)))
        self._insert()
        self._disturb()
        self.simulation.run(self._exceeds_bound, _BUSY_S)
        self._is_busy = False
        self._repair()
        is_done = self.simulation.run(lambda: not self.world.rows, _QUIET_S)
        # Requests that are still on their way arrive.
        self.simulation.run(lambda: False, self.world.faults.late_s)
        self._judge(is_done)
        self.simulation.close()
        return self.problems

    def _exceeds_bound(self) -> bool:
        most = max(node.relay.in_flight for node in self.nodes)
        if most > self.limits.in_flight:
            self.problems.append(f"{most} rows are in flight")
        return bool(self.problems)

    # The service

    def _insert(self) -> None:
        self._insert_some()
        if self._is_busy:
            self._later(self._random.uniform(0.0, 0.1), self._insert)

    def _insert_some(self) -> None:
        random = self._random
        for _ in range(random.choice((1, 2, 4, 12))):
            key = random.choice(self._drawn)
            if key in self._locked:
                continue
            topic = random.choice(("orders", "oplog"))
            row = Row(next(self._ids), NOON, topic, key, str(next(self._numbers)))
            if random.random() < 0.03:
                self.world.refused.add(row.id)
                ends = self._skip if random.random() < 0.5 else self._permit_row
                self._later(random.uniform(0.3, 3), partial(ends, row))
            draw = random.random()
            if draw < 0.8:
                self._commit(row)
            else:
                self._locked.add(key)
                decide = self._commit if draw < 0.9 else self._roll_back
                self._later(random.uniform(0.01, 0.5), partial(decide, row))

    def _commit(self, row: Row) -> None:
        self._locked.discard(row.key)
        assert row.value is not None
        self.committed[row.key].append(row.value)
        self.world.commit(row)

    def _roll_back(self, row: Row) -> None:
        self._locked.discard(row.key)

    def _skip(self, row: Row) -> None:
        if self.world.has(row):
            self._delete(row)
        self._permit_row(row)

    def _delete(self, row: Row) -> None:
        assert row.value is not None
        self._deleted.add(row.value)
        self.world.skip(row.id)

    def _permit_row(self, row: Row) -> None:
        self.world.refused.discard(row.id)

    def _empty(self) -> None:
        """Delete all rows and use their ids again, unless a transaction is open."""
        if not self._locked and not self.world.locked and self.world.rows:
            self._ids = itertools.count(min(self.world.rows))
            for row, _ in [*self.world.rows.values()]:
                self._delete(row)
            self.world.refused.clear()
            for _ in range(self._random.choice((0, 4))):
                self._insert_some()

    def _lock(self) -> None:
        """Lock some or all rows, as a transaction of the service does."""
        ids = [*self.world.rows]
        if self._random.random() < 0.7:
            ids = self._random.sample(ids, min(len(ids), 2))
        locked = {*ids} - self.world.locked
        self.world.locked |= locked
        seconds = self._random.choice((0.1, 0.5, 2.0))
        self._later(seconds, lambda: self.world.locked.difference_update(locked))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.simulation.after(seconds, call)

    # Faults of processes

    def _disturb(self) -> None:
        if not self._is_busy:
            return
        random = self._random
        place = random.randrange(2)
        node = self.nodes[place]
        match random.choice(_DISTURBANCES):
            case "freeze":
                node.process.freeze(random.choice((0.2, 0.7, 1.5, 3.0)))
            case "cut":
                node.process.is_cut = True
                self._later(random.choice((0.1, 0.6, 2.0)), lambda: self._connect(node))
            case "kill":
                node.kill()
                self._replace(place)
            case "stop":
                node.stop()
                self._replace(place)
            case "empty":
                self._empty()
            case "empty and kill":
                self._empty()
                node.kill()
                self._replace(place)
            case "lock":
                self._lock()
            case "forbid":
                self.world.forbids = True
                self._later(random.uniform(0.1, 0.6), self._permit)
        self._later(random.uniform(0.1, 1.5), self._disturb)

    def _replace(self, place: int) -> None:
        self.nodes[place] = Node(self.world, self.limits)
        self.all_nodes.append(self.nodes[place])

    def _connect(self, node: Node) -> None:
        node.process.is_cut = False

    def _permit(self) -> None:
        self.world.forbids = False

    def _repair(self) -> None:
        self.world.faults = Faults()
        self.world.forbids = False
        self.world.locked.clear()
        for node in self.all_nodes:
            node.process.is_cut = False
            node.process.thaw()

    # The promises

    def _judge(self, is_done: bool) -> None:
        if not is_done:
            self.problems.append(f"rows are left: {sorted(self.world.rows)}")
        for key, expected in self.committed.items():
            arrived = [row.value or "" for row in self.world.arrived if row.key == key]
            collapsed = [number for number, _ in itertools.groupby(arrived)]
            wanted = self._wanted(expected, set(collapsed))
            if collapsed != wanted:
                self.problems.append(f"key {key}: {collapsed}, not {wanted}")
        for node in self.all_nodes:
            self.problems += node.publisher.violations
            if node.error is not None:
                self.problems.append(f"a relay has died: {node.error!r}")
            self.problems += [str(each) for each in node.process.errors]

    def _wanted(self, expected: Iterable[str], arrived: set[str]) -> list[str]:
        """Return the numbers of rows that must arrive: a deleted row may."""
        return [each for each in expected if each not in self._deleted or each in arrived]
