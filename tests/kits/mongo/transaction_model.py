"""A model of appending a transaction's operations: two agents do so at once, beside a plain writer.

It has the events of ``append_model``. The steps are those of ``OperationAppender`` and of the fold,
each read and each write for itself. Run as a program, this counts the wrong schedules of each way.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from tests.kits.mongo.append_model import RIGHT, AppendWorld, Fate, Insert, ModelEntry, play, write

TXN = "transaction"
OPERATIONS = 4


class Way(NamedTuple):
    """``judges_always``: also if the own last insert was whole, as no plain writer needs to."""

    head_is_first: bool = True
    judges_always: bool = True
    fold_notes_first: bool = True
    note_is_read_last: bool = True
    checkpoint_is_read_again: bool = True
    checks_late: bool = True


WAYS = {
    "as it is": Way(),
    "judged before the head is read": Way(head_is_first=False),
    "judged only in doubt": Way(judges_always=False),
    "noted after the checkpoint": Way(fold_notes_first=False),
    "note read before the log": Way(note_is_read_last=False),
    "checkpoint read only once": Way(checkpoint_is_read_again=False),
    "no check of late inserts": Way(checks_late=False),
}


class TransactionWorld(AppendWorld):
    """``folded_of`` holds the note of the transaction."""

    def __init__(self, way: Way, chance: random.Random) -> None:
        super().__init__(RIGHT, chance)
        self.way = way
        # The second write of the fold.
        self._rest: Callable[[], None] | None = None

    def fold(self) -> bool:
        """Carry out one of the two writes of the fold."""
        if self._rest is not None:
            self._rest()
            self._rest = None
            return True
        place = min((place for place in self.majority if place > self.checkpoint), default=None)
        if place is None:
            return False
        if place != self.checkpoint + 1:
            self.faults.add("a hole")
        entry = self.majority[place]

        def note() -> None:
            self.folded_of[entry.writer] = entry.sequence

        def raise_checkpoint() -> None:
            self.passed[entry] += 1
            self.checkpoint = place

        writes = [note, raise_checkpoint]
        # The checkpoint and the sequences of plain writers are one write.
        if entry.writer == TXN and not self.way.fold_notes_first:
            writes.reverse()
        writes[0]()
        self._rest = writes[1]
        if entry.writer != TXN:
            self.fold()
        return True

    def last(self) -> Generator[None, None, int]:
        """Return the largest number in the log or in the note."""
        folded = self.checkpoint
        yield
        found, noted = (-1, -1), -1
        for step in ("log", "note") if self.way.note_is_read_last else ("note", "log"):
            if step == "note":
                noted = self.folded_of.get(TXN, -1)
            else:
                unfolded = [
                    (place, each.sequence)
                    for place, each in self.majority.items()
                    if place > folded and each.writer == TXN
                ]
                found = max(unfolded, default=found)
            yield
            if step == "log" and self.way.checkpoint_is_read_again:
                folded = self.checkpoint
                yield
        return found[1] if found[0] > folded else noted

    def standing_operations(self, insert: Insert) -> Generator[None, None, list[ModelEntry]]:
        folded = self.checkpoint
        yield
        noted = self.folded_of.get(TXN, -1)
        landed = enumerate(insert.entries[: insert.done], insert.head + 1)
        return [each for place, each in landed if place > folded or each.sequence <= noted]


def coordinate(world: TransactionWorld) -> Iterator[None]:
    """Append all operations, two by each insert, one step at a time."""
    batch = [ModelEntry(TXN, number) for number in range(OPERATIONS)]
    todo = list(batch)
    is_in_doubt = True
    while todo:
        head = last = -1
        began = 0
        for step in ("newest", "judge") if world.way.head_is_first else ("judge", "newest"):
            if step == "newest":
                head, began = world.newest(), world.trimmed_times
                yield
            elif is_in_doubt or world.way.judges_always:
                last = yield from world.last()
        todo = [each for each in todo if each.sequence > last]
        if not todo:
            break
        insert = Insert(head, todo[:2])
        world.inserts.append(insert)
        while insert.fate is None:
            yield
        landed = insert.entries[: insert.done]
        is_in_doubt = insert.fate is Fate.LOST or landed != insert.entries
        if insert.fate is Fate.LOST:
            continue
        if world.way.checks_late and world.trimmed_times != began:
            landed = yield from world.standing_operations(insert)
        todo = [each for each in todo if each not in landed]
    world.acknowledged += batch


def run(way: Way, seed: int) -> set[str]:
    """Return the faults of one schedule: none, if the way is right."""
    world = TransactionWorld(way, random.Random(seed))
    play(world, [coordinate(world), coordinate(world), write(world, "plain")], chaos_steps=80)
    numbers = [entry.sequence for entry in world.passed if entry.writer == TXN]
    if numbers != sorted(numbers):
        world.faults.add("operations out of order")
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
