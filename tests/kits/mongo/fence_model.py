"""A model of fences: three leaders acquire a lease one after another, at any time, and write.

Each believes in its term until its fence does not hold. It has the events of ``append_model``; a
fail-over takes back a term that no majority has, too. Run as a program, this counts the wrong
schedules of each way.
"""

import random
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from tests.kits.mongo.append_model import RIGHT, AppendWorld, ModelFence, play, write

LEADERS = 3


class Way(NamedTuple):
    """``steps`` and ``is_judged_again``: see ``ModelFence``."""

    steps: tuple[str, ...] = ("newest", "judge", "fence")
    is_judged_again: bool = True
    acquires_by_majority: bool = True


_FENCE_FIRST = ("fence", "newest", "judge")
WAYS = {
    "judged with the append": Way(),
    "judged on arrival": Way(_FENCE_FIRST, is_judged_again=False),
    "judged before the head is read": Way(_FENCE_FIRST),
    "judged in the first round only": Way(is_judged_again=False),
    "acquired without a majority": Way(acquires_by_majority=False),
}


class FenceWorld(AppendWorld):
    """``term``: the lease's, on the primary. ``majority_term``: the one that a fail-over keeps."""

    def __init__(self, way: Way, chance: random.Random) -> None:
        super().__init__(RIGHT, chance)
        self.way = way
        self.term = self.majority_term = 0
        # Entries past this place are copied to the majority after the term.
        self._term_at = 0
        # The writers of all leaders, in the order in which they acquired the lease.
        self.writers: list[str] = []

    def acquire(self) -> Generator[None, None, tuple[int, str]]:
        """Return a new term and its writer, once it counts as acquired."""
        while True:
            self.term += 1
            self._term_at = max(self.log, default=self.checkpoint)
            writer = f"writer {len(self.writers)}"
            self.writers.append(writer)
            term, fail_overs = self.term, self.fail_overs
            yield
            if not self.way.acquires_by_majority:
                return term, writer
            while self.majority_term < term and self.fail_overs == fail_overs:
                yield
            if self.fail_overs == fail_overs:
                return term, writer

    def replicate(self) -> bool:
        place = next((place for place in self.log if place not in self.majority), None)
        if self.majority_term < self.term and (place is None or place > self._term_at):
            self.majority_term = self.term
            return True
        return super().replicate()

    def fail_over(self) -> bool:
        has_failed = super().fail_over()
        if has_failed:
            self.term = self.majority_term
        return has_failed


def lead(world: FenceWorld) -> Iterator[None]:
    """Acquire the lease, and write while it lasts, one step at a time."""
    yield
    term, writer = yield from world.acquire()
    way = world.way
    fence = ModelFence(lambda: world.majority_term == term, way.steps, way.is_judged_again)
    yield from write(world, writer, fence)


def run(way: Way, seed: int) -> set[str]:
    """Return the faults of one schedule: none, if the way is right."""
    world = FenceWorld(way, random.Random(seed))
    play(world, [lead(world) for _ in range(LEADERS)])
    order = [world.writers.index(entry.writer) for entry in world.passed]
    if order != sorted(order):
        world.faults.add("an entry of an old term behind one of a later term")
    return world.faults


def wrong(way: Way, seeds: Iterable[int]) -> Counter[str]:
    """Return the number of wrong schedules by kind of fault; "any" counts each once."""
    counts: Counter[str] = Counter(any=0)
    for seed in seeds:
        faults = run(way, seed)
        counts["any"] += bool(faults)
        counts.update(faults)
    return counts


def main() -> None:
    schedules = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
    for name, way in WAYS.items():
        print(f"{name}: {dict(wrong(way, range(schedules)))} of {schedules}", flush=True)


if __name__ == "__main__":
    main()
