"""A model of the conditional append: schedules of two writers, with all events that can interfere.

The steps are named as in ``oplogd/store/mongo/log/conditional.py`` and ``batch.py``: ``newest``
reads the head, ``judge`` drops operations of the batch that are in already, ``insert``, and
``standing`` checks a late insert. A writer in doubt reads the checkpoint, the log and the
checkpoint. Between these steps a majority lags, a primary is replaced by one without the entries
that no majority has, answers are lost, inserts are carried out late, the log is folded and trimmed.
One entry at a time is inserted, copied and folded. Run as a program, this counts the wrong
schedules of each order.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple


class Order(NamedTuple):
    """The order of a writer's steps."""

    head_is_majority: bool = True
    head_is_first: bool = True
    checks_late: bool = True
    checkpoint_is_read_again: bool = True


RIGHT = Order()
ORDERS = {
    "majority head, then judged": RIGHT,
    "local head, token judged first": Order(head_is_majority=False, head_is_first=False),
    "local head first": Order(head_is_majority=False),
    "majority head, token judged first": Order(head_is_first=False),
    "no check of what was late": Order(checks_late=False),
    "checkpoint read only once": Order(checkpoint_is_read_again=False),
}

# Operations of each writer, in two batches.
OPERATIONS = 4

_MOST_STEPS = 3_000


class ModelFence(NamedTuple):
    """The condition of a writer, and the steps of its rounds. It ends if the fence does not hold.

    ``is_judged_again``: in each round, otherwise only in the first one of a batch.
    """

    holds: Callable[[], bool]
    steps: tuple[str, ...] = ("newest", "judge", "fence")
    is_judged_again: bool = True


class ModelEntry(NamedTuple):
    writer: str
    sequence: int


class Fate(StrEnum):
    ANSWERED = "answered"
    LOST = "lost"  # the writer does not know the result


class Insert:
    """An ordered insert on its way.

    ``done``: number of entries carried out, before a duplicate key or the end stopped it.
    """

    def __init__(self, head: int, entries: list[ModelEntry]) -> None:
        self.head = head
        self.entries = entries
        self.done = 0
        self.has_stopped = False
        self.fate: Fate | None = None


class AppendWorld:
    """``log``: entries of the primary. ``majority``: those of them that a fail-over keeps.

    ``faults``: kinds of wrong results.
    """

    def __init__(self, order: Order, chance: random.Random) -> None:
        self.order = order
        self.chance = chance
        self.log: dict[int, ModelEntry] = {}
        self.majority: dict[int, ModelEntry] = {}
        self.inserts: list[Insert] = []
        self.checkpoint = 0
        self.folded_of: dict[str, int] = {}
        # Entries that readers and the fold got.
        self.passed: Counter[ModelEntry] = Counter()
        self.acknowledged: list[ModelEntry] = []
        self.trimmed_times = 0
        self.fail_overs = 1
        self.losses = 2
        self.faults: set[str] = set()

    # Questions of a writer

    def newest(self) -> int:
        """Return the head; of an empty log the checkpoint."""
        return max(
            self.majority if self.order.head_is_majority else self.log, default=self.checkpoint
        )

    def last_of(self, writer: str) -> Generator[None, None, int]:
        """Return the largest sequence in the log or in the checkpoint."""
        folded = self.checkpoint
        yield
        unfolded = [
            (place, each.sequence)
            for place, each in self.majority.items()
            if place > folded and each.writer == writer
        ]
        found = max(unfolded, default=(-1, -1))
        yield
        if self.order.checkpoint_is_read_again:
            folded = self.checkpoint
        return found[1] if found[0] > folded else self.folded_of.get(writer, -1)

    def standing(self, insert: Insert) -> list[ModelEntry]:
        return [
            each
            for place, each in enumerate(insert.entries[: insert.done], insert.head + 1)
            if place > self.checkpoint or each.sequence <= self.folded_of.get(each.writer, -1)
        ]

    # Events meanwhile. Each returns whether it was possible.

    def carry_out(self) -> bool:
        """Insert one entry, even if its writer no longer waits."""
        going = [each for each in self.inserts if not each.has_stopped]
        if not going:
            return False
        insert = self.chance.choice(going)
        place = insert.head + 1 + insert.done
        if place in self.log:
            insert.has_stopped = True
            return True
        self.log[place] = insert.entries[insert.done]
        insert.done += 1
        insert.has_stopped = insert.done == len(insert.entries)
        return True

    def replicate(self) -> bool:
        """Copy one entry to the majority, in the order of the primary."""
        place = next((place for place in self.log if place not in self.majority), None)
        if place is not None:
            self.majority[place] = self.log[place]
        return place is not None

    def answer(self) -> bool:
        """Answer an insert, once a majority has its entries."""
        for insert in self.inserts:
            places = range(insert.head + 1, insert.head + 1 + insert.done)
            if (
                insert.fate is None
                and insert.has_stopped
                and all(place in self.majority or place not in self.log for place in places)
            ):
                insert.fate = Fate.ANSWERED
                return True
        return False

    def lose(self) -> bool:
        """Break a writer's connection. Its insert stays on its way."""
        waited_for = [each for each in self.inserts if each.fate is None]
        if not waited_for or not self.losses:
            return False
        self.losses -= 1
        self.chance.choice(waited_for).fate = Fate.LOST
        return True

    def fail_over(self) -> bool:
        """Replace the primary. Inserts that had begun end with the old one."""
        if not self.fail_overs:
            return False
        self.fail_overs -= 1
        self.log = dict(self.majority)
        for insert in self.inserts:
            if insert.fate is None and (insert.done or insert.has_stopped):
                insert.fate = Fate.LOST
            if insert.done:
                insert.has_stopped = True
        return True

    def fold(self) -> bool:
        """Fold the majority's next entry. Readers take a hole for trimmed entries and pass it."""
        place = min((place for place in self.majority if place > self.checkpoint), default=None)
        if place is None:
            return False
        if place != self.checkpoint + 1:
            self.faults.add("a hole")
        entry = self.majority[place]
        self.passed[entry] += 1
        self.folded_of[entry.writer] = entry.sequence
        self.checkpoint = place
        return True

    def trim(self) -> bool:
        """Trim all folded entries but the last. Every insert under way is late after that."""
        gone = [place for place in self.majority if place < self.checkpoint]
        for place in gone:
            del self.majority[place]
            self.log.pop(place, None)
        self.trimmed_times += bool(gone)
        return bool(gone)


def write(world: AppendWorld, name: str, fence: ModelFence | None = None) -> Iterator[None]:
    """Write two batches, one step at a time, and each until it is acknowledged."""
    half = OPERATIONS // 2
    steps: tuple[str, ...] = ("newest", "judge")
    if fence or not world.order.head_is_first:
        steps = fence.steps if fence else ("judge", "newest")
    for first in (0, half):
        todo = [ModelEntry(name, sequence) for sequence in range(first, first + half)]
        batch = list(todo)
        is_in_doubt = False
        is_held: bool | None = None
        while todo:
            head = last = -1
            began = 0
            for step in steps:
                if step == "newest":
                    head, began = world.newest(), world.trimmed_times
                elif step == "fence":
                    if fence and (fence.is_judged_again or is_held is None):
                        is_held = fence.holds()
                elif is_in_doubt:
                    last = yield from world.last_of(name)
                yield
            if is_held is False:
                return
            todo = [each for each in todo if each.sequence > last]
            if not todo:
                break
            insert = Insert(head, todo)
            world.inserts.append(insert)
            while insert.fate is None:
                yield
            is_in_doubt = True
            if insert.fate is Fate.LOST:
                continue
            landed = insert.entries[: insert.done]
            if world.order.checks_late and world.trimmed_times != began:
                landed = world.standing(insert)
                yield
            todo = [each for each in todo if each not in landed]
        world.acknowledged += batch


def play(world: AppendWorld, tasks: list[Iterator[None]], chaos_steps: int = 60) -> None:
    """Carry out the steps of tasks and the events in a random order. Note the faults."""
    progress: list[Callable[[], bool]] = [
        world.carry_out,
        world.replicate,
        world.answer,
        world.fold,
    ]
    chaos: list[Callable[[], bool]] = [*progress, world.trim, world.lose, world.fail_over]
    for number in range(_MOST_STEPS):
        is_chaos = number < chaos_steps
        steps: list[Callable[[], bool] | Iterator[None]] = [*(chaos if is_chaos else progress)]
        step = world.chance.choice([*steps, *tasks])
        if isinstance(step, Iterator):
            if next(step, world) is world:
                tasks.remove(step)
        elif not step() and not is_chaos and not tasks and not any(each() for each in progress):
            break
    else:
        world.faults.add("no end")
    if any(world.passed[entry] == 0 for entry in world.acknowledged):
        world.faults.add("an operation that readers never get")
    if any(count > 1 for count in world.passed.values()):
        world.faults.add("a doubled operation")


def run(order: Order, seed: int) -> set[str]:
    """Return the faults of one schedule: none, if the order is right."""
    world = AppendWorld(order, random.Random(seed))
    play(world, [write(world, name) for name in "ab"])
    for name in "ab":
        sequences = [entry.sequence for entry in world.passed if entry.writer == name]
        if sequences != sorted(sequences):
            world.faults.add("operations of a writer out of order")
    return world.faults


def wrong(order: Order, seeds: Iterable[int]) -> Counter[str]:
    """Return the number of wrong schedules by kind of fault; "any" counts each once."""
    counts: Counter[str] = Counter(any=0)
    for seed in seeds:
        faults = run(order, seed)
        counts["any"] += bool(faults)
        counts.update(faults)
    return counts


def main() -> None:
    schedules = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
    for name, order in ORDERS.items():
        print(f"{name}: {dict(wrong(order, range(schedules)))} of {schedules}", flush=True)


if __name__ == "__main__":
    main()
