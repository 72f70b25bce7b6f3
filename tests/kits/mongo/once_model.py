"""A model of committing numbers of one key: all schedules of two coordinators, each may die.

The steps are those of ``Claims``, ``TransactionDecider`` and ``Completion``, each read and each
write for itself. Run as a program, this counts the wrong schedules of each way.
"""

from collections.abc import Callable, Generator, Iterator
from itertools import combinations
from typing import NamedTuple

# Most steps of one coordinator.
STEPS = 8

Program = Generator[None, None, None]


class Way(NamedTuple):
    claims: bool = True
    ends_the_claimant: bool = True
    settles_before_the_end: bool = True
    judges_the_end: bool = True


WAYS = {
    "as it is": Way(),
    "only looks before it decides": Way(claims=False),
    "takes the claim of an open transaction": Way(ends_the_claimant=False),
    "settles a finished commit": Way(settles_before_the_end=False),
    "takes the claim of a decided transaction": Way(judges_the_end=False),
}


class KeyRow(NamedTuple):
    """Number and transaction of the newest commit, and of the claim."""

    newest: tuple[int, str]
    claim: tuple[int, str] | None


class World:
    """One key, and its transactions by id.

    ``newest`` and ``claim``: number and transaction. ``order``: the numbers by their decisions.
    ``told``: for each transaction the one whose commit was its answer, None for a conflict.
    """

    def __init__(self, way: Way, numbers: dict[str, int]) -> None:
        self.way = way
        self.numbers = numbers
        self.phases = dict.fromkeys(numbers, "open")
        self.newest = (-1, "")
        self.claim: tuple[int, str] | None = None
        self.order: list[int] = []
        self.told: dict[str, str | None] = {}

    def swap(self, id_: str, phase: str, wanted: str) -> bool:
        """Change the phase of a transaction by compare-and-set."""
        if self.phases[id_] != phase:
            return False
        self.phases[id_] = wanted
        if wanted == "committing":
            self.order.append(self.numbers[id_])
        return True

    def settle(self, id_: str) -> None:
        if self.claim == (self.numbers[id_], id_):
            self.newest, self.claim = self.claim, None

    def faults(self) -> set[str]:
        found = set()
        if len(set(self.order)) < len(self.order):
            found.add("a number twice")
        if self.order != sorted(self.order):
            found.add("a number after a larger one")
        if any(winner and self.phases[winner] != "committed" for winner in self.told.values()):
            found.add("an answer that does not hold")
        return found


def complete(world: World, id_: str) -> Program:
    if world.way.claims and world.way.settles_before_the_end:
        world.settle(id_)
        yield
    world.swap(id_, "committing", "committed")
    yield
    if not world.way.claims:
        world.newest = (world.numbers[id_], id_)
    elif not world.way.settles_before_the_end:
        world.settle(id_)
    yield


def look(world: World, own: str) -> Generator[None, None, KeyRow]:
    """Return the row of the key after a decided transaction with the claim was completed."""
    while True:
        row = KeyRow(world.newest, world.claim)
        yield
        if row.claim is None or row.claim[1] == own or not world.way.judges_the_end:
            return row
        phase = world.phases[row.claim[1]]
        yield
        if phase == "committing":
            yield from complete(world, row.claim[1])
        elif phase == "committed" and world.way.settles_before_the_end:
            continue  # read again: it is settled
        else:
            return row


def commit(world: World, id_: str) -> Program:
    number = world.numbers[id_]
    while True:
        row = yield from look(world, id_)
        if row.newest[0] >= number or not world.way.claims:
            break
        if row.claim is not None and world.way.ends_the_claimant:
            world.swap(row.claim[1], "open", "aborted")
            yield
            is_free = world.phases[row.claim[1]] != "committing" or not world.way.judges_the_end
            yield
            if not is_free:
                continue
        if KeyRow(world.newest, world.claim) == row:
            world.claim = (number, id_)
            yield
            break
    if row.newest[0] < number and world.swap(id_, "open", "committing"):
        yield
        yield from complete(world, id_)
        world.told[id_] = id_
        return
    world.swap(id_, "open", "aborted")
    yield
    row = yield from look(world, id_)
    world.told[id_] = row.newest[1] if row.newest[0] == number else None


def schedules(length: int) -> Iterator[tuple[int, ...]]:
    """Return all orders of up to so many steps of each of two programs, as 0 and 1."""
    for first in range(length + 1):
        for second in range(length + 1):
            for places in combinations(range(first + second), first):
                yield tuple(int(place not in places) for place in range(first + second))


def run(way: Way, numbers: tuple[int, int, int], schedule: tuple[int, ...]) -> set[str]:
    """Return the faults of one schedule. After it the keeper works, then a third coordinator."""
    world = World(way, dict(zip("abc", numbers, strict=True)))
    programs = [commit(world, "a"), commit(world, "b")]
    for each in schedule:
        next(programs[each], None)
    for id_ in "ab":
        if world.phases[id_] == "committing":
            finish(lambda id_=id_: complete(world, id_))  # type: ignore[misc]
        world.swap(id_, "open", "aborted")
    finish(lambda: commit(world, "c"))
    return world.faults()


def finish(program: Callable[[], Program]) -> None:
    for _ in program():
        pass


def wrong(way: Way, length: int = STEPS) -> tuple[int, int]:
    """Return the number of wrong schedules, and of all."""
    found = total = 0
    for numbers in ((5, 5, 5), (5, 6, 5), (6, 5, 6), (6, 5, 5)):
        for schedule in schedules(length):
            found += bool(run(way, numbers, schedule))
            total += 1
    return found, total


def main() -> None:
    for name, way in WAYS.items():
        found, total = wrong(way)
        print(f"{name}: {found:,} of {total:,} schedules are wrong", flush=True)


if __name__ == "__main__":
    main()
